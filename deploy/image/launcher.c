/* linkerd2-proxy-init in Sponson's image: hands its file's capabilities on to `sponson redirect`.

   A kubelet starts an init container that is not root without any capability: it has the right to gain those of the
   file that it runs, and with no_new_privs the right ends there. A script's interpreter has none to gain, and what the
   interpreter starts can then gain none either, iptables with capabilities of its own included. So the file that the
   pod names has NET_ADMIN and NET_RAW, and this raises them as ambient ones, which the Python below it keeps.
   Whatever cannot be raised is left to iptables to complain of. */
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"
#define PROGRAM "/usr/lib/sponson/proxy-init.py"

int main(int argc, char **argv) {
    const int wanted[] = {CAP_NET_ADMIN, CAP_NET_RAW};
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, sets) == 0) {
        for (int i = 0; i < 2; i++)
            sets[CAP_TO_INDEX(wanted[i])].inheritable |= sets[CAP_TO_INDEX(wanted[i])].permitted & CAP_TO_MASK(wanted[i]);
        if (syscall(SYS_capset, &header, sets) == 0)
            for (int i = 0; i < 2; i++)
                prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, wanted[i], 0, 0);
    }
    char **arguments = calloc(argc + 3, sizeof *arguments);
    if (arguments == NULL)
        return 1;
    int count = 0;
    arguments[count++] = "python3";
    arguments[count++] = "-IB";
    arguments[count++] = PROGRAM;
    for (int i = 1; i < argc; i++)
        arguments[count++] = argv[i];
    execv(PYTHON, arguments);
    perror(PYTHON);
    return 1;
}
