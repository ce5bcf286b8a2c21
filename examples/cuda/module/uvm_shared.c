// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Code of nvidia.ko that nvidia-uvm.ko has a copy of. */
#include "calls.c"
#include "nv-kthread-q.c"
