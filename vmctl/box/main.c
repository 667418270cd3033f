/* The first process of a container that podman makes: see vmctl/podman.h. Statically linked, and part of agentkernel as bytes. */
#include "vmctl/podman.h"

int main(void)
{
	podman_init_main();
}
