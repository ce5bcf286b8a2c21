/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nvidia

#if !defined(NV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NV_TRACE_H

#include <linux/tracepoint.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define nv_assign_str(field, text) __assign_str(field)
#else
#define nv_assign_str(field, text) __assign_str(field, text)
#endif

TRACE_EVENT(nvidia_dev_xid,
    TP_PROTO(const char *pci_name, u32 error_code, const char *message),
    TP_ARGS(pci_name, error_code, message),
    TP_STRUCT__entry(
        __string(dev, pci_name)
        __field(u32, error_code)
        __string(msg, message)
    ),
    TP_fast_assign(
        nv_assign_str(dev, pci_name);
        nv_assign_str(msg, message);
        __entry->error_code = error_code;
    ),
    TP_printk("Xid (PCI:%s): %u, %s", __get_str(dev), __entry->error_code, __get_str(msg))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE nv-trace
#include <trace/define_trace.h>
