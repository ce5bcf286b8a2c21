// SPDX-License-Identifier: GPL-2.0 OR MIT
#include <linux/fs.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "calls.h"

static LLIST_HEAD(counts);

/* Any context. */
notrace void count_call(struct call_count *count, long number) {
    atomic_long_add(number, &count->number);
    if (!atomic_xchg(&count->listed, 1)) llist_add(&count->next, &counts);
}

static int calls_show(struct seq_file *out, void *unused) {
    struct call_count *count;
    llist_for_each_entry(count, counts.first, next) {
        long number = atomic_long_read(&count->number);
        if (number) seq_printf(out, "%s %s %ld\n", count->what, count->name, number);
    }
    return 0;
}

static int calls_open(struct inode *inode, struct file *file) {
    return single_open(file, calls_show, NULL);
}

static ssize_t calls_reset(struct file *file, const char __user *text, size_t length, loff_t *at) {
    struct call_count *count;
    llist_for_each_entry(count, counts.first, next) atomic_long_set(&count->number, 0);
    return length;
}

static const struct proc_ops calls_operations = {
    .proc_open = calls_open,
    .proc_read = seq_read,
    .proc_write = calls_reset,
    .proc_lseek = seq_lseek,
    .proc_release = single_release,
};

void calls_add_file(struct proc_dir_entry *folder) {
    proc_create("calls", 0600, folder, &calls_operations);
}
