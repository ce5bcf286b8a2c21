/* The BPF helpers that are too long to be generated inline. The code runs in the traced process, within one of its calls: it is
 * position-independent, calls nothing, has no data of its own and uses general registers only. Maps lie in memory that the process
 * and the tracer share, with descriptions in the code; see `layout.rs`, which describes the same structures.
 *
 * The arguments are those of the BPF helper, then `cpu`. Errors are negative numbers, as in the kernel. The files below are included: the
 * helpers are one piece of code. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

#define EXPORT __attribute__((visibility("default")))
#define NULL ((void *)0)

enum { ENOENT = 2, ESRCH = 3, E2BIG = 7, EAGAIN = 11, EFAULT = 14, EBUSY = 16, EEXIST = 17, EINVAL = 22 };

enum { SYS_RT_SIGPROCMASK = 14, SYS_SCHED_YIELD = 24, SYS_GETPID = 39, SYS_PRCTL = 157, SYS_GETTID = 186, SYS_CLOCK_GETTIME = 228, SYS_PROCESS_VM_READV = 310 };
enum { PR_GET_NAME = 16 };

static void copy(u8 *to, const u8 *from, u64 size) {
    u64 i = 0;
    for (; i + 8 <= size; i += 8)
        *(u64 *)(to + i) = *(const u64 *)(from + i);
    for (; i < size; i++)
        to[i] = from[i];
}

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}

/* Words of the process alone, at the start of the region; see `layout.rs`. In a child of fork(2) they are zero. */
struct own {
    u64 unused;
    u32 tgid, tid, cpu, thread_at, number, stack_at;
    u64 stack_start, stack_end;
    u64 stuck;      /* owner of a chain who did not come back */
    u64 frames_end; /* in the tracer: end of the stack that its programs use; elsewhere 0 */
    u32 damaged;    /* 1: a map is not as its rules make it */
    u32 budget;     /* in the tracer: attempts that are left for locks */
};

/* The id of this thread from its control block, if its place is known; otherwise 0. */
static u32 stored_thread_id(const struct own *own) {
    u32 id = 0;
    if (own->thread_at)
        asm("movl %%fs:(%1), %0" : "=r"(id) : "r"((u64)own->thread_at));
    return id;
}

static struct own *own_of(void *description, u64 offset) { return (struct own *)((u8 *)description + offset); }

#include "maps.c"
#include "ring.c"
#include "memory.c"
#include "returns.c"
#include "stacks.c"
#include "load.c"
