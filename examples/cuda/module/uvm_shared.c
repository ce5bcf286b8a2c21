// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What nvidia-uvm.ko has a copy of. */
#include "calls.c"
#include "nv-kthread-q.c"
