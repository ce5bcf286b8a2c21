/* Memory of the code and of the traced process, its clocks and names. */

/* Bytes of stack above a helper's frame that hold the programs' own variables at most: eight functions of 512 bytes, and what lies between. */
#define OWN_FRAMES 8192

static void zero(u8 *to, u64 size) {
    for (u64 i = 0; i < size; i++)
        to[i] = 0;
}

/* Bytes from an address on that belong to the generated code: maps, records, constants, or variables of programs on the stack. All of these
 * are there. An address that a script has made of a number is not followed: it may be that of anything. */
static u64 own_bytes(const u8 *from, struct own *own, const u8 *region_end) {
    u64 at = (u64)from, here = (u64)__builtin_frame_address(0);
    u64 frames_end = own->frames_end ? own->frames_end : here + OWN_FRAMES;
    if (at >= (u64)own && at < (u64)region_end)
        return (u64)region_end - at;
    return at > here && at < frames_end ? frames_end - at : 0;
}

/* Memory of the generated code itself: maps, records, its stack. */
EXPORT i64 read_own(u8 *to, u64 size, const u8 *from, struct own *own, const u8 *region_end) {
    if (size > own_bytes(from, own, region_end)) {
        zero(to, size);
        return -EFAULT;
    }
    copy(to, from, size);
    return 0;
}

EXPORT i64 read_own_string(u8 *to, u64 size, const u8 *from, struct own *own, const u8 *region_end) {
    u64 length = 0, most = own_bytes(from, own, region_end);
    if (!size)
        return 0;
    if (!most) {
        zero(to, size);
        return -EFAULT;
    }
    if (most > size - 1)
        most = size - 1;
    while (length < most && (to[length] = from[length]))
        length++;
    to[length] = 0;
    return length + 1;
}

/* Memory of the process, for a program that runs in the tracer: it has none. */
EXPORT i64 read_nothing(u8 *to, u64 size) {
    zero(to, size);
    return -EFAULT;
}

/* The id of this thread. A system call, until the id is found at `expected_at` of the thread control block, as in glibc: while the program is
 * still being loaded, there is no block. 0: it is not looked for. */
EXPORT u64 thread_id(struct own *own, u64 expected_at) {
    u32 id = stored_thread_id(own);
    if (id)
        return id;
    id = system_call(SYS_GETTID, 0, 0, 0, 0, 0, 0);
    u64 block = 0;
    if (expected_at)
        asm volatile("rdfsbase %0" : "=r"(block));
    /* The block of another C library may be smaller, and the page behind it need not exist. */
    if (block && (block & 4095) + expected_at < 4096 && *(volatile u32 *)(block + expected_at) == id)
        own->thread_at = expected_at;
    return id;
}

EXPORT u64 clock_ns(u64 clock) {
    struct { u64 seconds, ns; } time = {0, 0};
    system_call(SYS_CLOCK_GETTIME, clock, (long)&time, 0, 0, 0, 0);
    return time.seconds * 1000000000ul + time.ns;
}

EXPORT i64 get_comm(u8 *to, u64 size) {
    u8 name[16] = {0};
    u64 i;
    system_call(SYS_PRCTL, PR_GET_NAME, (long)name, 0, 0, 0, 0);
    for (i = 0; i < size && i < sizeof name; i++)
        to[i] = name[i];
    for (; i < size; i++)
        to[i] = 0;
    return 0;
}

/* The frames of the detour and of the dispatch lie above this one, at least this many bytes: the stack is there. */
#define FRAMES_ABOVE 256

/* Reads memory of the process that may not be there: the kernel answers with an error where a load would be a fault. Arguments of the
 * traced function are on the stack, on pages that are there. */
static int read_checked(u8 *to, u64 size, const u8 *from, u32 tgid) {
    u64 here = (u64)__builtin_frame_address(0);
    u64 end = (here + FRAMES_ABOVE) | 4095;
    if ((u64)from > here && (u64)from <= end && size <= end - (u64)from + 1) {
        copy(to, from, size);
        return 1;
    }
    struct { const void *at; u64 size; } local = {to, size}, remote = {from, size};
    return system_call(SYS_PROCESS_VM_READV, tgid, (long)&local, 1, (long)&remote, 1, 0) == (long)size;
}

EXPORT i64 read_user(u8 *to, u64 size, const u8 *from, u64 a, u64 b, u32 tgid) {
    if (!size || read_checked(to, size, from, tgid))
        return 0;
    zero(to, size);
    return -EFAULT;
}

/* Reads parts that end with a page: what follows the text need not be there. As in the kernel, the bytes of the buffer behind the text
 * stay as they are. */
EXPORT i64 read_user_string(u8 *to, u64 size, const u8 *from, u64 a, u64 b, u32 tgid) {
    u8 part[256];
    u64 length = 0;
    if (!size)
        return 0;
    while (length < size) {
        u64 count = 4096 - ((u64)(from + length) & 4095);
        if (count > sizeof part)
            count = sizeof part;
        if (count > size - length)
            count = size - length;
        if (!read_checked(part, count, from + length, tgid)) {
            zero(to, size);
            return -EFAULT;
        }
        for (u64 i = 0; i < count; i++)
            if (!(to[length++] = part[i]))
                return length;
    }
    to[size - 1] = 0;
    return size;
}
