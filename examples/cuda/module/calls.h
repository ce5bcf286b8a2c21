/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The modules' own counts, for comparison with a trace: /proc/driver/MODULE/calls has one line `WHAT NAME NUMBER` for each.
 * Writing to the file sets all to 0.
 */
#ifndef CALLS_H
#define CALLS_H

#include <linux/atomic.h>
#include <linux/llist.h>

struct proc_dir_entry;

struct call_count {
    const char *what, *name;
    atomic_long_t number;
    atomic_t listed;
    struct llist_node next;
};

void count_call(struct call_count *count, long number);
void calls_add_file(struct proc_dir_entry *folder);

#define COUNT_CALL(what_, name_, number_)                               \
    do {                                                                \
        static struct call_count count_ = {.what = what_, .name = name_}; \
        count_call(&count_, number_);                                   \
    } while (0)

/* At the beginning of a function that may be probed: counts its calls. */
#define COUNT_FUNCTION() COUNT_CALL("function", __func__, 1)

#endif
