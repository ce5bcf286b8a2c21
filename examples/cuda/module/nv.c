// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A stand-in for NVIDIA's kernel driver, to test probes on: its entry points by name, its device files and its ioctls, and no
 * device. See ../README.md.
 */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "calls.h"
#include "nv-kthread-q.h"
#include "nv.h"

#define CREATE_TRACE_POINTS
#include "nv-trace.h"

enum { SIMULATED_IRQ = 99, ARGUMENT_MAX = 4096, MESSAGE_MAX = 160 };

static nv_state_t gpu = {.gpu_id = 0x1a00, .pci_name = NV_PCI_NAME, .fb_size = 1ull << 30};
module_param_named(fb_size, gpu.fb_size, ullong, 0644);
MODULE_PARM_DESC(fb_size, "bytes of device memory");

static nv_kthread_q_t queue;

/* ---- interrupts: a channel or memory is made, and the device reports it ---- */
static nv_kthread_q_item_t bottom_half;
static struct irq_work interrupt;

irqreturn_t nvidia_isr(int irq, void *arg);
noinline irqreturn_t nvidia_isr(int irq, void *arg) {
    nv_state_t *nv = arg;
    NvU32 need_run_bottom_half = 0;
    COUNT_FUNCTION();
    if (!rm_isr(NULL, nv, &need_run_bottom_half)) return IRQ_NONE;
    if (need_run_bottom_half) os_queue_work_item(&bottom_half);
    return IRQ_HANDLED;
}

irqreturn_t nvidia_isr_kthread_bh(int irq, void *data);
noinline irqreturn_t nvidia_isr_kthread_bh(int irq, void *data) {
    COUNT_FUNCTION();
    rm_isr_bh(NULL, data);
    return IRQ_HANDLED;
}

static void run_bottom_half(void *data) {
    nvidia_isr_kthread_bh(SIMULATED_IRQ, data);
}

static void interrupted(struct irq_work *unused) {
    nvidia_isr(SIMULATED_IRQ, &gpu);
}

void nv_raise_interrupt(nv_state_t *nv) {
    irq_work_queue(&interrupt);
}

NV_STATUS os_queue_work_item(void *pWorkItem) {
    COUNT_FUNCTION();
    nv_kthread_q_schedule_q_item(&queue, pWorkItem);
    return NV_OK;
}

/* ---- Xid reports ---- */
noinline void nv_report_error(const char *pci_name, NvU32 error_number, const char *message) {
    COUNT_FUNCTION();
    COUNT_CALL("event", "nvidia_dev_xid", 1);
    pr_err("NVRM: Xid (PCI:%.10s): %u, %s\n", pci_name, error_number, message);
    trace_nvidia_dev_xid(pci_name, error_number, message);
}

struct xid {
    nv_kthread_q_item_t item;
    struct completion reported;
    NvU32 number;
    char message[MESSAGE_MAX];
};

static void report_xid(void *args) {
    struct xid *xid = args;
    krcReportXid_IMPL(&gpu, NULL, xid->number, xid->message);
    complete(&xid->reported);
}

/* `NUMBER MESSAGE`: the device reports this error. As in the real driver, a kernel thread handles it: the message names the
   program. */
static ssize_t xid_write(struct file *file, const char __user *from, size_t length, loff_t *at) {
    struct xid *xid;
    char text[MESSAGE_MAX / 2] = "";
    int used = 0;
    ssize_t result = length;
    if (length >= sizeof text || copy_from_user(text, from, length)) return -EINVAL;
    xid = kzalloc(sizeof *xid, GFP_KERNEL);
    if (!xid) return -ENOMEM;
    if (sscanf(text, "%u %n", &xid->number, &used) == 1) {
        snprintf(xid->message, sizeof xid->message, "pid=%d, name=%s, %s", task_tgid_nr(current), current->comm,
                 strim(text + used));
        init_completion(&xid->reported);
        nv_kthread_q_item_init(&xid->item, report_xid, xid);
        nv_kthread_q_schedule_q_item(&queue, &xid->item);
        wait_for_completion(&xid->reported);
    } else {
        result = -EINVAL;
    }
    kfree(xid);
    return result;
}

static const struct proc_ops xid_operations = {.proc_write = xid_write};

/* ---- device files ---- */
int nvidia_open(struct inode *inode, struct file *file);
noinline int nvidia_open(struct inode *inode, struct file *file) {
    nv_file_private_t *nvfp = kzalloc(sizeof *nvfp, GFP_KERNEL);
    COUNT_FUNCTION();
    if (!nvfp) return -ENOMEM;
    nvfp->nvptr = &gpu;
    nvfp->minor = iminor(inode);
    file->private_data = nvfp;
    return 0;
}

int nvidia_close(struct inode *inode, struct file *file);
noinline int nvidia_close(struct inode *inode, struct file *file) {
    nv_file_private_t *nvfp = file->private_data;
    COUNT_FUNCTION();
    rm_free_unused_clients(NULL, &gpu, nvfp);
    if (nvfp->pages) __free_page(nvfp->pages);
    kfree(nvfp);
    return 0;
}

__poll_t nvidia_poll(struct file *file, poll_table *wait);
noinline __poll_t nvidia_poll(struct file *file, poll_table *wait) {
    COUNT_FUNCTION();
    return 0;
}

/* The page with the doorbell, to which a program writes when it submits work: no system call follows. */
int nvidia_mmap(struct file *file, struct vm_area_struct *vma);
noinline int nvidia_mmap(struct file *file, struct vm_area_struct *vma) {
    nv_file_private_t *nvfp = file->private_data;
    COUNT_FUNCTION();
    if (nvfp->minor == NV_MINOR_CONTROL || vma->vm_end - vma->vm_start != PAGE_SIZE) return -EINVAL;
    if (!nvfp->pages) nvfp->pages = alloc_page(GFP_KERNEL | __GFP_ZERO);
    return nvfp->pages ? vm_insert_page(vma, vma->vm_start, nvfp->pages) : -ENOMEM;
}

static int card_info(nv_ioctl_card_info_t *cards, NvU32 size) {
    if (size < sizeof *cards || size % sizeof *cards) return -EINVAL;
    memset(cards, 0, size);
    cards->valid = 1;
    cards->pci_info.bus = 0x1a;
    cards->gpu_id = gpu.gpu_id;
    cards->interrupt_line = SIMULATED_IRQ;
    cards->fb_size = gpu.fb_size;
    return 0;
}

/* A library of another version is refused. */
static int check_version(nv_ioctl_rm_api_version_t *version, NvU32 size) {
    if (size != sizeof *version) return -EINVAL;
    version->reply = !strncmp(version->versionString, NV_DRIVER_VERSION, sizeof version->versionString);
    strscpy(version->versionString, NV_DRIVER_VERSION, sizeof version->versionString);
    return version->reply ? 0 : -EINVAL;
}

static int register_fd(nv_file_private_t *nvfp, const nv_ioctl_register_fd_t *fd, NvU32 size) {
    if (size != sizeof *fd || nvfp->minor == NV_MINOR_CONTROL) return -EINVAL;
    if (nvfp->ctl_nvfp) return -EBUSY;
    nvfp->ctl_nvfp = nvfp;
    return 0;
}

static int dispatch(nv_file_private_t *nvfp, NvU32 command, void *argument, NvU32 size) {
    switch (command) {
    case NV_ESC_CARD_INFO: return card_info(argument, size);
    case NV_ESC_CHECK_VERSION_STR: return check_version(argument, size);
    case NV_ESC_REGISTER_FD: return register_fd(nvfp, argument, size);
    case NV_ESC_SYS_PARAMS:
        if (size != sizeof(nv_ioctl_sys_params_t)) return -EINVAL;
        ((nv_ioctl_sys_params_t *)argument)->memblock_size = 128 << 20;
        return 0;
    }
    return rm_ioctl(NULL, nvfp->nvptr, nvfp, command, argument, size) == NV_OK ? 0 : -EINVAL;
}

static NV_STATUS status_of(NvU32 command, const void *argument) {
    switch (command) {
    case NV_ESC_RM_ALLOC: return ((const NVOS64_PARAMETERS *)argument)->status;
    case NV_ESC_RM_FREE: return ((const NVOS00_PARAMETERS *)argument)->status;
    case NV_ESC_RM_CONTROL: return ((const NVOS54_PARAMETERS *)argument)->status;
    case NV_ESC_RM_MAP_MEMORY: return ((const nv_ioctl_nvos33_parameters_with_fd *)argument)->params.status;
    case NV_ESC_RM_UNMAP_MEMORY: return ((const NVOS34_PARAMETERS *)argument)->status;
    }
    return NV_OK;
}

/* `ioctl`: all calls. `failed`: with an errno. `status`: with an error in the argument. */
static void count_ioctl(NvU32 command, int result, const void *argument) {
    switch (command) {
#define COUNT(NAME, NUMBER)                                                            \
    case NUMBER:                                                                       \
        COUNT_CALL("ioctl", #NAME, 1);                                                 \
        if (result) COUNT_CALL("failed", #NAME, 1);                                    \
        else if (status_of(command, argument) != NV_OK) COUNT_CALL("status", #NAME, 1); \
        break;
        NV_IOCTLS(COUNT)
#undef COUNT
    default: COUNT_CALL("ioctl", "unknown", 1);
    }
}

long nvidia_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long i_arg);
noinline long nvidia_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long i_arg) {
    NvU32 command = _IOC_NR(cmd), size = _IOC_SIZE(cmd);
    void __user *from = (void __user *)i_arg;
    void *argument;
    int result;
    COUNT_FUNCTION();
    if (_IOC_TYPE(cmd) != 'F') return -EINVAL;
    if (command == NV_ESC_IOCTL_XFER_CMD) {
        nv_ioctl_xfer_t xfer;
        COUNT_CALL("ioctl", "NV_ESC_IOCTL_XFER_CMD", 1);
        if (size != sizeof xfer || copy_from_user(&xfer, from, size)) return -EFAULT;
        command = xfer.cmd;
        size = xfer.size;
        from = (void __user *)xfer.ptr;
    }
    if (size > ARGUMENT_MAX) return -EINVAL;
    argument = memdup_user(from, size);
    if (IS_ERR(argument)) {
        count_ioctl(command, PTR_ERR(argument), NULL);
        return PTR_ERR(argument);
    }
    result = dispatch(file->private_data, command, argument, size);
    count_ioctl(command, result, argument);
    if (!result && copy_to_user(from, argument, size)) result = -EFAULT;
    kfree(argument);
    return result;
}

static const struct file_operations nvidia_fops = {
    .owner = THIS_MODULE,
    .open = nvidia_open,
    .release = nvidia_close,
    .poll = nvidia_poll,
    .mmap = nvidia_mmap,
    .unlocked_ioctl = nvidia_unlocked_ioctl,
};

/* ---- for nvidia-uvm ---- */
NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *gpuUuid);
noinline NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *gpuUuid) {
    COUNT_FUNCTION();
    return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceRegisterGpu);

NV_STATUS nvUvmInterfaceDupMemory(NvHandle hClient, NvHandle hMemory, NvU64 *size);
noinline NV_STATUS nvUvmInterfaceDupMemory(NvHandle hClient, NvHandle hMemory, NvU64 *size) {
    COUNT_FUNCTION();
    return rm_gpu_ops_dup_memory(NULL, hClient, hMemory, size);
}
EXPORT_SYMBOL(nvUvmInterfaceDupMemory);

/* ---- /proc/driver/nvidia ---- */
static int version_show(struct seq_file *out, void *unused) {
    seq_puts(out, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " NV_DRIVER_VERSION "  (simulated)\n");
    return 0;
}

static int information_show(struct seq_file *out, void *unused) {
    seq_printf(out, "Model: \t\t %s\nIRQ:   \t\t %d\nBus Location: \t %s\nDevice Minor: \t 0\n", NV_MODEL, SIMULATED_IRQ,
               gpu.pci_name);
    return 0;
}

static struct proc_dir_entry *proc_folder;

static void add_proc_files(void) {
    struct proc_dir_entry *folder;
    proc_folder = proc_mkdir("driver/nvidia", NULL);
    proc_create_single("version", 0444, proc_folder, version_show);
    folder = proc_mkdir("gpus", proc_folder);
    folder = proc_mkdir(NV_PCI_NAME, folder);
    proc_create_single("information", 0444, folder, information_show);
    calls_add_file(proc_folder);
    proc_create("xid", 0222, proc_folder, &xid_operations);
}

/* ---- the module ---- */
static struct cdev devices, control;

static int add_devices(struct cdev *cdev, int first, int count, const char *name) {
    int error = register_chrdev_region(MKDEV(NV_MAJOR, first), count, name);
    if (error) return error;
    cdev_init(cdev, &nvidia_fops);
    cdev->owner = THIS_MODULE;
    error = cdev_add(cdev, MKDEV(NV_MAJOR, first), count);
    if (error) unregister_chrdev_region(MKDEV(NV_MAJOR, first), count);
    return error;
}

static void remove_devices(struct cdev *cdev, int first, int count) {
    cdev_del(cdev);
    unregister_chrdev_region(MKDEV(NV_MAJOR, first), count);
}

static int __init nvidia_init_module(void) {
    int error = nv_kthread_q_init(&queue, "nv_queue");
    if (error) return error;
    nv_kthread_q_item_init(&bottom_half, run_bottom_half, &gpu);
    init_irq_work(&interrupt, interrupted);
    error = add_devices(&devices, 0, NV_MINOR_CONTROL, "nvidia");
    if (error) goto no_devices;
    error = add_devices(&control, NV_MINOR_CONTROL, 1, "nvidiactl");
    if (error) goto no_control;
    add_proc_files();
    return 0;
no_control:
    remove_devices(&devices, 0, NV_MINOR_CONTROL);
no_devices:
    nv_kthread_q_stop(&queue);
    return error;
}

static void __exit nvidia_exit_module(void) {
    proc_remove(proc_folder);
    remove_devices(&control, NV_MINOR_CONTROL, 1);
    remove_devices(&devices, 0, NV_MINOR_CONTROL);
    irq_work_sync(&interrupt);
    nv_kthread_q_stop(&queue);
}

module_init(nvidia_init_module);
module_exit(nvidia_exit_module);
MODULE_DESCRIPTION("Stand-in for NVIDIA's kernel driver, without a device");
MODULE_VERSION(NV_DRIVER_VERSION);
MODULE_LICENSE("Dual MIT/GPL");
