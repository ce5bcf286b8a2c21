/*
 * recurse [DEPTH [SLEEP_US]]: traced_recurse calls itself DEPTH deep (100) and sleeps at the bottom and once more on each
 * way up. So the call at depth d, counted from 0 at the top, lasts at least (DEPTH - d) sleeps.
 */
#include "cases.h"

TRACED long traced_recurse(long depth, long us) {
    long below = depth > 1 ? traced_recurse(depth - 1, us) : 0;
    sleep_us(us);
    return below + 1;
}

int main(int argc, char **argv) {
    long depth = number(argc, argv, 1, 100), us = number(argc, argv, 2, 1000);
    long reached = traced_recurse(depth, us);
    begin_counts();
    printf("count traced_recurse %ld\n", reached);
    printf("sleep_us %ld\n", us);
    printf("least_us outermost %ld\nleast_us innermost %ld\n", depth * us, us);
    end_counts();
    return reached == depth ? 0 : 1;
}
