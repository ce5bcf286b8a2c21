// Uses seccomp in one of the ways that programs do, then opens a library and calls a function of it ten times.
//
// filters prctl|tsync|strict|listener LIBRARY
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
static struct sock_fprog program = {1, allow};

static int use(const char *mode) {
    if (!strcmp(mode, "prctl")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (!strcmp(mode, "strict")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0;
    long flags = strcmp(mode, "tsync") ? SECCOMP_FILTER_FLAG_NEW_LISTENER : SECCOMP_FILTER_FLAG_TSYNC;
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    return strcmp(mode, "tsync") ? result >= 0 : result;
}

int main(int argc, char **argv) {
    if (argc < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || use(argv[1])) return 1;
    void *library = dlopen(argv[2], RTLD_NOW);
    long (*call)(long) = library ? (long (*)(long))dlsym(library, "hammer_push") : 0;
    for (int i = 0; call && i < 10; i++) call(i);
    return !call;
}
