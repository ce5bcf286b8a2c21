/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Deferred work in a kernel thread. Both modules contain it, so each of its functions is in /proc/kallsyms twice. */
#ifndef NV_KTHREAD_Q_H
#define NV_KTHREAD_Q_H

#include <linux/list.h>
#include <linux/semaphore.h>
#include <linux/spinlock.h>

typedef struct nv_kthread_q_item {
    struct list_head q_list_node;
    void (*function_to_run)(void *args);
    void *function_args;
} nv_kthread_q_item_t;

typedef struct nv_kthread_q {
    struct list_head q_list_head;
    spinlock_t q_lock;
    struct semaphore q_sem;
    bool main_loop_should_exit;
    struct task_struct *q_kthread;
} nv_kthread_q_t;

int nv_kthread_q_init(nv_kthread_q_t *q, const char *qname);
void nv_kthread_q_stop(nv_kthread_q_t *q);
void nv_kthread_q_item_init(nv_kthread_q_item_t *q_item, void (*function_to_run)(void *args), void *function_args);
/* Any context. 1: queued, 0: it is in the queue already. */
int nv_kthread_q_schedule_q_item(nv_kthread_q_t *q, nv_kthread_q_item_t *q_item);

#endif
