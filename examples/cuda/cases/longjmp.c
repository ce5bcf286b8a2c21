/*
 * longjmp [JUMPS [CALLS [SLEEP_US]]]: traced_jump leaves by longjmp JUMPS times (10), so that it never returns; then it is
 * called CALLS times (100) in the ordinary way, sleeping each time. Every second jump crosses a traced caller as well.
 */
#include <setjmp.h>

#include "cases.h"

static jmp_buf back;

TRACED long traced_jump(int jump, long us) {
    if (jump) longjmp(back, 1);
    sleep_us(us);
    return us;
}

TRACED long traced_outer(int jump, long us) {
    return traced_jump(jump, us) + 1;
}

/* One call that is left by longjmp: 1 once it has been. */
static long leave(int through_outer) {
    if (setjmp(back)) return 1;
    if (through_outer) traced_outer(1, 0);
    else traced_jump(1, 0);
    return 0;
}

int main(int argc, char **argv) {
    long jumps = number(argc, argv, 1, 10), calls = number(argc, argv, 2, 100), us = number(argc, argv, 3, 1000);
    long jumped = 0;
    for (long i = 0; i < jumps; i++) jumped += leave(i % 2 != 0);
    for (long i = 0; i < calls; i++) traced_jump(0, us);
    begin_counts();
    printf("count traced_jump %ld\ncount traced_outer %ld\n", jumps + calls, jumps / 2);
    printf("unpaired traced_jump %ld\nunpaired traced_outer %ld\n", jumped, jumps / 2);
    printf("returns traced_jump %ld\nreturns traced_outer 0\nleast_us traced_jump %ld\n", calls, us);
    end_counts();
    return jumped == jumps ? 0 : 1;
}
