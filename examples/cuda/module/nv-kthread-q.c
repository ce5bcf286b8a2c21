// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/err.h>
#include <linux/kthread.h>

#include "calls.h"
#include "nv-kthread-q.h"

static nv_kthread_q_item_t *next_item(nv_kthread_q_t *q) {
    nv_kthread_q_item_t *item;
    unsigned long flags;
    spin_lock_irqsave(&q->q_lock, flags);
    item = list_first_entry_or_null(&q->q_list_head, nv_kthread_q_item_t, q_list_node);
    if (item) list_del_init(&item->q_list_node);
    spin_unlock_irqrestore(&q->q_lock, flags);
    return item;
}

static int _main_loop(void *args) {
    nv_kthread_q_t *q = args;
    for (;;) {
        nv_kthread_q_item_t *item;
        if (down_interruptible(&q->q_sem)) continue;
        item = next_item(q);
        if (item) item->function_to_run(item->function_args);
        else if (q->main_loop_should_exit) break;
    }
    while (!kthread_should_stop()) schedule_timeout_interruptible(1);
    return 0;
}

int nv_kthread_q_init(nv_kthread_q_t *q, const char *qname) {
    INIT_LIST_HEAD(&q->q_list_head);
    spin_lock_init(&q->q_lock);
    sema_init(&q->q_sem, 0);
    q->main_loop_should_exit = false;
    q->q_kthread = kthread_run(_main_loop, q, "%s", qname);
    return PTR_ERR_OR_ZERO(q->q_kthread);
}

void nv_kthread_q_stop(nv_kthread_q_t *q) {
    q->main_loop_should_exit = true;
    up(&q->q_sem);
    kthread_stop(q->q_kthread);
}

void nv_kthread_q_item_init(nv_kthread_q_item_t *q_item, void (*function_to_run)(void *args), void *function_args) {
    INIT_LIST_HEAD(&q_item->q_list_node);
    q_item->function_to_run = function_to_run;
    q_item->function_args = function_args;
}

int nv_kthread_q_schedule_q_item(nv_kthread_q_t *q, nv_kthread_q_item_t *q_item) {
    unsigned long flags;
    int queued;
    COUNT_FUNCTION();
    spin_lock_irqsave(&q->q_lock, flags);
    queued = list_empty(&q_item->q_list_node);
    if (queued) list_add_tail(&q_item->q_list_node, &q->q_list_head);
    spin_unlock_irqrestore(&q->q_lock, flags);
    if (queued) up(&q->q_sem);
    return queued;
}
