/* Calls whose return is traced. The return address of a call is replaced by a stub. There is one stub per return address, and no stub is
 * ever used for another one: whatever happens to a call (longjmp, exceptions, coroutines, vfork), the stub leads back. What the
 * programs keep from the entry to the return is in a slot. A slot that is lost costs an event and nothing else.
 *
 * Slots are found by the place of the return address on the stack: no other running call has the same, whatever thread it belongs to.
 * A call that was left by longjmp or an exception leaves its slot behind. The next call with that place takes it; or a call that finds
 * no free slot, if the stub's address is not at that place any more. See `returns.rs`, which describes the same structures. */
#define STUB_SIZE 16
#define AFTER_CALL 4  /* a stub begins with a call: the address that is on the stack */
#define STUB_CALL 0xf02454ffu /* call *-16(%rsp) */
#define STUB_PUSH 0x68        /* push of 32 bits */
#define ADDRESS_PROBES 64
#define SLOT_PROBES 8
#define CHECKS 2
#define SLOT_SESSIONS 5
#define MAX_TAIL_CALLS 8
#define ACTIVE_THREAD 0x3fffffffu

struct returns {
    u64 stubs;     /* offsets relative to this structure */
    u64 addresses; /* u64 per stub: its return address; 0: the stub is free */
    u64 slots;
    u64 more;      /* sessions that do not fit in the slots */
    u64 more_size; /* bytes of them per slot */
    u64 lost;      /* u64: calls without a slot */
    u32 address_mask, slot_mask;
    u64 silent;    /* not 0: no program runs at a return any more */
    u64 replaced;  /* slots that were taken from calls that had been left */
    u64 hand;      /* which slots are examined next */
    u64 active;    /* u32: see `ACTIVE` of `layout.rs` */
};

/* In front of the first stub, for stack walks of other sessions. */
struct stubs_header { u64 magic, addresses; /* relative to the header */ };
#define STUBS_MAGIC 0x3173627574737463ul /* "ctstubs1" */

struct slot {
    u64 place; /* bits 48 to 63: a version; then the place of the return address, 0: free; bit 0: in preparation */
    u32 stub, mask;
    u64 record;
    u64 sessions[SLOT_SESSIONS];
};

/* The frame of a dispatch, and the record of a function, as far as they are used here. */
struct words { u64 record, mask, sessions[]; };
struct record { u64 self, address, moved, leave, sessions; };

#define PLACE 0xfffffffffff8ul
#define PREPARED 1ul
#define VERSION (1ul << 48)
#define NO_STUB ~0u

static u64 *address_of(struct returns *returns, u32 stub) { return (u64 *)((u8 *)returns + returns->addresses) + stub; }
static u64 stub_address(struct returns *returns, u32 stub) { return (u64)returns + returns->stubs + (u64)stub * STUB_SIZE; }
static struct slot *slot_at(struct returns *returns, u64 place, u32 probe) {
    /* Neighbours on a stack are neighbours here, and stacks are apart. */
    u64 number = (place >> 4) + (place >> 18) * 0x9e37;
    return (struct slot *)((u8 *)returns + returns->slots) + ((number + probe) & returns->slot_mask);
}

/* The stub to whose call an address on the stack belongs; NO_STUB: it is an address of the program. */
static u32 stub_at(struct returns *returns, u64 address) {
    u64 offset = address - stub_address(returns, 0) - AFTER_CALL;
    int is_stub = offset <= (u64)returns->address_mask * STUB_SIZE && offset % STUB_SIZE == 0;
    return is_stub ? offset / STUB_SIZE : NO_STUB;
}

static u32 stub_for(struct returns *returns, u64 address) {
    u32 hash = (address * 0x9e3779b97f4a7c15ul) >> 40;
    for (u32 probe = 0; probe < ADDRESS_PROBES; probe++) {
        u32 stub = (hash + probe) & returns->address_mask;
        u64 *cell = address_of(returns, stub);
        u64 known = __atomic_load_n(cell, __ATOMIC_RELAXED);
        if (!known && __atomic_compare_exchange_n(cell, &known, address, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return stub;
        if (known == address)
            return stub;
    }
    return NO_STUB;
}

/* Number of calls that ended with a jump to another traced function, as an address on the stack shows. */
static u32 tail_calls(struct returns *returns, u64 address) {
    u32 count = 0;
    for (u32 stub; count <= MAX_TAIL_CALLS && (stub = stub_at(returns, address)) != NO_STUB; count++)
        address = *address_of(returns, stub);
    return count;
}

/* Whether the call of a slot has been left: neither the stub's address is on the stack, nor what is there directly before and after. */
static int is_left(struct returns *returns, u64 place, u32 stub) {
    u64 word;
    u32 self = system_call(SYS_GETPID, 0, 0, 0, 0, 0, 0);
    /* The stack of a thread that has ended may not be there. */
    if (!read_checked((u8 *)&word, sizeof word, (const u8 *)place, self))
        return 1;
    for (u32 count = 0; count <= MAX_TAIL_CALLS; count++) {
        u32 next = stub_at(returns, word);
        if (word == stub || next == stub || word == *address_of(returns, stub))
            return 0;
        if (next == NO_STUB)
            return 1;
        word = *address_of(returns, next);
    }
    return 0;
}

static int take_slot(struct slot *slot, u64 word, u64 place) {
    u64 taken = ((word & ~(VERSION - 1)) + VERSION) | place | PREPARED;
    return __atomic_compare_exchange_n(&slot->place, &word, taken, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* A slot for a call, in preparation. `replaces`: no other call with this place is running. */
static struct slot *slot_for(struct returns *returns, u64 place, int replaces) {
    for (u32 probe = 0; probe < SLOT_PROBES; probe++) {
        struct slot *slot = slot_at(returns, place, probe);
        u64 word = __atomic_load_n(&slot->place, __ATOMIC_RELAXED), known = word & (VERSION - 1);
        if (known && !(replaces && (known & PLACE) == place))
            continue;
        if (take_slot(slot, word, place)) {
            if (known)
                __atomic_fetch_add(&returns->replaced, 1, __ATOMIC_RELAXED);
            return slot;
        }
    }
    u64 hand = __atomic_fetch_add(&returns->hand, CHECKS, __ATOMIC_RELAXED);
    for (u32 check = 0; check < CHECKS; check++) {
        struct slot *slot = slot_at(returns, place, (hand + check) % SLOT_PROBES);
        u64 word = __atomic_load_n(&slot->place, __ATOMIC_ACQUIRE);
        if (word & PREPARED || !is_left(returns, word & PLACE, __atomic_load_n(&slot->stub, __ATOMIC_RELAXED)))
            continue;
        if (take_slot(slot, word, place)) {
            __atomic_fetch_add(&returns->replaced, 1, __ATOMIC_RELAXED);
            return slot;
        }
    }
    return NULL;
}

static u64 *session_of(struct returns *returns, struct slot *slot, u64 number) {
    if (number < SLOT_SESSIONS)
        return &slot->sessions[number];
    u64 index = slot - (struct slot *)((u8 *)returns + returns->slots);
    return (u64 *)((u8 *)returns + returns->more + index * returns->more_size) + number - SLOT_SESSIONS;
}

/* Remembers a call, whose return address is at `at`, and returns the stub that executes it; 0 if there is no room. */
EXPORT u64 call_enters(struct returns *returns, u64 *at, struct words *words) {
    u64 place = (u64)at & (VERSION - 1), address = *at;
    struct record *record = (struct record *)words->record;
    u32 above = tail_calls(returns, address);
    u32 stub = above <= MAX_TAIL_CALLS && !((u64)at & 7) ? stub_for(returns, address) : NO_STUB;
    struct slot *slot = stub != NO_STUB ? slot_for(returns, place, above == 0) : NULL;
    if (!slot) {
        __atomic_fetch_add((u64 *)((u8 *)returns + returns->lost), 1, __ATOMIC_RELAXED);
        return 0;
    }
    slot->mask = words->mask;
    slot->record = words->record;
    for (u64 number = 0; number < record->sessions; number++)
        *session_of(returns, slot, number) = words->sessions[number];
    __atomic_store_n(&slot->stub, stub, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->place, slot->place & ~PREPARED, __ATOMIC_RELEASE);
    return stub_address(returns, stub);
}

/* Whether programs may run at a return: they may make system calls, which the process may have forbidden since its tracer left it. */
static int runs_programs(struct returns *returns) {
    u32 active = __atomic_load_n((u32 *)((u8 *)returns + returns->active), __ATOMIC_RELAXED);
    return active & ACTIVE_THREAD && !__atomic_load_n(&returns->silent, __ATOMIC_RELAXED);
}

/* A call has returned to a stub, whose number is at the place of the return address. Restores the address, and returns the record of
 * the function; 0 if the call's slot was lost, or if no program is to run. */
EXPORT u64 call_returns(struct returns *returns, u64 *at, struct words *words) {
    u64 place = (u64)at & (VERSION - 1);
    u32 stub = *at;
    *at = *address_of(returns, stub);
    for (u32 probe = 0; probe < SLOT_PROBES; probe++) {
        struct slot *slot = slot_at(returns, place, probe);
        u64 word = __atomic_load_n(&slot->place, __ATOMIC_RELAXED);
        if ((word & (VERSION - 1)) != place || slot->stub != stub)
            continue;
        struct record *record = (struct record *)slot->record;
        words->record = slot->record;
        words->mask = slot->mask;
        for (u64 number = 0; number < record->sessions; number++)
            words->sessions[number] = *session_of(returns, slot, number);
        __atomic_store_n(&slot->place, word & ~(VERSION - 1), __ATOMIC_RELEASE);
        return runs_programs(returns) ? words->record : 0;
    }
    __atomic_fetch_add((u64 *)((u8 *)returns + returns->lost), 1, __ATOMIC_RELAXED);
    return 0;
}
