/* What makes a restored guest this sandbox: clock, entropy, names, addresses, and the root that the host shares. */
#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROOT "/root"
#define SHARES "/share" /* what the host shares: "root" and "usr", each with the folder of that name */
#define LINK "eth0"

/* Of linux/random.h, which a C library without the kernel's headers does not have. */
#define ADD_ENTROPY _IOW('R', 0x03, int[2])
#define RESEED _IO('R', 0x07)

struct pool {
	int entropy_count, size;
	uint8_t data[64];
};

struct vm_config guest_config;

/* ---- modules ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* The host has numbered them in the order of their dependencies. */
void guest_modules(void)
{
	struct dirent **list = NULL;
	int n = scandir("/modules", &list, NULL, by_name);

	for (int i = 0; i < n; i++) {
		char path[300];
		int fd;

		snprintf(path, sizeof(path), "/modules/%s", list[i]->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && list[i]->d_name[0] != '.' && syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
			printf("agentkernel guest: %s: %s\n", path, strerror(errno));
		close(fd);
		free(list[i]);
	}
	free(list);
}

/* ---- identity ---- */

static int set_entropy(const struct vm_config *c)
{
	struct pool pool = { .entropy_count = 8 * sizeof(c->entropy), .size = sizeof(c->entropy) };
	int fd = open("/dev/random", O_WRONLY | O_CLOEXEC), rc;

	memcpy(pool.data, c->entropy, sizeof(c->entropy));
	rc = fd < 0 || ioctl(fd, ADD_ENTROPY, &pool) < 0 || ioctl(fd, RESEED) < 0 ? -errno : 0;
	close(fd);
	memset(&pool, 0, sizeof(pool));
	return rc;
}

static int set_identity(const struct vm_config *c)
{
	struct timespec now = { .tv_sec = (time_t)c->clock_s, .tv_nsec = (long)c->clock_ns };
	int rc = set_entropy(c);

	if (rc == 0 && clock_settime(CLOCK_REALTIME, &now) < 0)
		rc = -errno;
	if (rc == 0 && sethostname(c->hostname, strlen(c->hostname)) < 0)
		rc = -errno;
	return rc;
}

/* ---- network ---- */

static int link_up(int sock, const char *name)
{
	struct ifreq r = { 0 };

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(sock, SIOCGIFFLAGS, &r) < 0)
		return -errno;
	/* No multicast, as on the link of a namespace: the kernel would report its groups to a gateway that denies and logs that. */
	r.ifr_flags = (short)((r.ifr_flags | IFF_UP) & ~IFF_MULTICAST);
	return ioctl(sock, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

static void fill4(struct sockaddr *sa, const uint8_t addr[4])
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	memcpy(&in.sin_addr, addr, 4);
	memcpy(sa, &in, sizeof(in));
}

static int set_mac(int sock, const uint8_t mac[6])
{
	struct ifreq r = { .ifr_name = LINK };

	r.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(r.ifr_hwaddr.sa_data, mac, 6);
	return ioctl(sock, SIOCSIFHWADDR, &r) < 0 ? -errno : 0;
}

static int set_addr4(int sock, const struct vm_config *c)
{
	uint32_t mask = htonl(~0u << (32 - c->prefix4));
	struct ifreq r = { .ifr_name = LINK };

	fill4(&r.ifr_addr, c->addr4);
	if (ioctl(sock, SIOCSIFADDR, &r) < 0)
		return -errno;
	fill4(&r.ifr_netmask, (const uint8_t *)&mask);
	return ioctl(sock, SIOCSIFNETMASK, &r) < 0 ? -errno : 0;
}

static int set_route4(int sock, const struct vm_config *c)
{
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
	struct arpreq arp = { .arp_flags = ATF_PERM | ATF_COM, .arp_dev = LINK };

	fill4(&arp.arp_pa, c->gw4);
	arp.arp_ha.sa_family = ARPHRD_ETHER;
	memcpy(arp.arp_ha.sa_data, c->gw_mac, 6);
	if (ioctl(sock, SIOCSARP, &arp) < 0)
		return -errno;
	fill4(&route.rt_dst, (const uint8_t[4]){ 0 });
	fill4(&route.rt_genmask, (const uint8_t[4]){ 0 });
	fill4(&route.rt_gateway, c->gw4);
	return ioctl(sock, SIOCADDRT, &route) < 0 ? -errno : 0;
}

struct in6_request { /* struct in6_ifreq of the kernel's header, which musl's netinet/in.h excludes */
	struct in6_addr addr;
	uint32_t prefix;
	int index;
};

struct in6_route {
	struct in6_addr dst, src, gateway;
	uint32_t type;
	uint16_t dst_len, src_len;
	uint32_t metric;
	unsigned long info;
	uint32_t flags;
	int index;
};

/* Of linux/netlink.h and linux/neighbour.h. */
struct neighbour_request {
	uint32_t len;
	uint16_t type, flags;
	uint32_t seq, pid;
	uint8_t family, pad[3];
	int32_t index;
	uint16_t state;
	uint8_t entry_flags, entry_type;
	uint16_t dst_len, dst_type;
	uint8_t dst[16];
	uint16_t mac_len, mac_type;
	uint8_t mac[6], end[2];
};

struct neighbour_reply {
	uint32_t len;
	uint16_t type, flags;
	uint32_t seq, pid;
	int32_t error;
};

/* The gateway answers no neighbour solicitation, and no ioctl adds an IPv6 neighbour: RTM_NEWNEIGH, permanent. */
static int set_neighbour6(const struct vm_config *c, int index)
{
	struct neighbour_request r = { .len = sizeof(r),
		.type = 28,
		.flags = 0x1 | 0x4 | 0x100 | 0x400, /* request, acknowledge, replace, create */
		.family = AF_INET6,
		.index = index,
		.state = 0x80,
		.dst_len = 20,
		.dst_type = 1,
		.mac_len = 10,
		.mac_type = 2 };
	struct neighbour_reply reply[8] = { 0 };
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0), rc = 0;

	memcpy(r.dst, c->gw6, sizeof(r.dst));
	memcpy(r.mac, c->gw_mac, sizeof(r.mac));
	if (sock < 0 || send(sock, &r, sizeof(r), 0) < 0 || recv(sock, reply, sizeof(reply), 0) < (ssize_t)sizeof(reply[0]))
		rc = -errno;
	else if (reply[0].type == 2)
		rc = reply[0].error;
	close(sock);
	return rc;
}

static int set_six(const struct vm_config *c, int index)
{
	struct in6_request a = { .prefix = c->prefix6, .index = index };
	struct in6_route route = { .metric = 1, .flags = RTF_UP | RTF_GATEWAY, .index = index };
	int sock = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

	if (sock < 0)
		return -errno;
	memcpy(&a.addr, c->addr6, 16);
	memcpy(&route.gateway, c->gw6, 16);
	if (ioctl(sock, SIOCSIFADDR, &a) < 0 || ioctl(sock, SIOCADDRT, &route) < 0)
		rc = -errno;
	close(sock);
	return rc < 0 ? rc : set_neighbour6(c, index);
}

static void set_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, text, strlen(text));
	close(fd);
}

static int set_network(const struct vm_config *c)
{
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (sock < 0)
		return -errno;
	set_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	set_file("/proc/sys/net/ipv6/conf/all/accept_dad", "0");
	set_file("/proc/sys/net/ipv6/conf/" LINK "/accept_dad", "0");
	set_file("/proc/sys/net/ipv6/conf/" LINK "/accept_ra", "0");
	set_file("/proc/sys/net/ipv6/conf/" LINK "/addr_gen_mode", "1");
	rc = link_up(sock, "lo");
	if (rc == 0 && c->network) {
		rc = set_mac(sock, c->mac);
		if (rc == 0)
			rc = set_addr4(sock, c);
		if (rc == 0)
			rc = link_up(sock, LINK);
		if (rc == 0)
			rc = set_route4(sock, c);
		if (rc == 0 && c->ipv6)
			rc = set_six(c, (int)if_nametoindex(LINK));
	}
	close(sock);
	return rc;
}

/* ---- root ---- */

#define NINE "trans=virtio,version=9p2000.L,msize=524288,"

/*
 * An image has users of its own: each file that one of them makes is theirs. Elsewhere everything belongs to the one user that commands run as, and the host's programs do not
 * change while a sandbox runs: caching them is what makes a program start fast.
 */
static int mount_shares(const struct vm_config *c)
{
	mkdir(SHARES, 0755);
	mkdir(SHARES "/root", 0755);
	mkdir(SHARES "/usr", 0755);
	if (mount("root", SHARES "/root", "9p", 0, c->image ? NINE "access=user,cache=mmap" : NINE "access=any,cache=mmap") < 0)
		return -errno;
	if (!c->image && mount("usr", SHARES "/usr", "9p", MS_RDONLY, NINE "access=any,cache=loose") < 0)
		return -errno;
	return 0;
}

static int mount_root(const struct vm_config *c)
{
	mkdir(ROOT, 0755);
	if (mount(SHARES "/root/root", ROOT, NULL, MS_BIND, NULL) < 0)
		return -errno;
	if (!c->image && mount(SHARES "/usr/usr", ROOT "/usr", NULL, MS_BIND, NULL) < 0)
		return -errno;
	if (mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return -errno;
	mkdir(ROOT "/sys", 0755);
	mount("sysfs", ROOT "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	if (mount("dev", ROOT "/dev", "devtmpfs", MS_NOSUID, "mode=0755") < 0)
		return -errno;
	mkdir(ROOT "/dev/pts", 0755);
	mkdir(ROOT "/dev/shm", 01777);
	if (mount("devpts", ROOT "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666") < 0)
		return -errno;
	mount("shm", ROOT "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mount("cgroup", ROOT "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	if (chdir(ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return -errno;
	return 0;
}

static void make_devices(void)
{
	unlink("/dev/ptmx");
	(void)!symlink("pts/ptmx", "/dev/ptmx");
	(void)!symlink("/proc/self/fd", "/dev/fd");
	(void)!symlink("/proc/self/fd/0", "/dev/stdin");
	(void)!symlink("/proc/self/fd/1", "/dev/stdout");
	(void)!symlink("/proc/self/fd/2", "/dev/stderr");
	for (const char *const *d = (const char *const[]){ "null", "zero", "full", "random", "urandom", "tty", NULL }; *d; d++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/%s", *d);
		chmod(path, 0666);
	}
}

/* ---- a guest that waits for its job ---- */

/*
 * Run a program of the host once. Under software emulation, most of the time of a first command goes into translating the kernel's and the C library's code, and into
 * reading that library: both are done when the job comes. Nothing of it stays but what is cached; failures do not matter.
 */
static void warm_up(void)
{
	static const char *const links[] = { "bin", "lib", "lib64" };
	pid_t pid;

	mkdir("/warm", 0755);
	mkdir("/warm/usr", 0755);
	if (mount(SHARES "/usr/usr", "/warm/usr", NULL, MS_BIND, NULL) < 0)
		return;
	for (int i = 0; i < 3; i++) {
		char name[24], target[24];

		snprintf(name, sizeof(name), "/warm/%s", links[i]);
		snprintf(target, sizeof(target), "usr/%s", links[i]);
		(void)!symlink(target, name);
	}
	pid = fork();
	if (pid == 0) {
		char *argv[] = { (char[]){ "/bin/sh" }, (char[]){ "-c" }, (char[]){ "/bin/true; :" }, NULL }, *env[] = { NULL };

		if (chroot("/warm") == 0 && chdir("/") == 0)
			execve(argv[0], argv, env);
		_exit(1);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	umount2("/warm/usr", MNT_DETACH);
}

static int prepare(const struct vm_config *c, const char **ret_step)
{
	int rc;

	*ret_step = "entropy";
	rc = set_entropy(c);
	if (rc < 0)
		return rc;
	*ret_step = "network";
	rc = set_network(c);
	if (rc < 0)
		return rc;
	*ret_step = "shares";
	rc = mount_shares(c);
	if (rc == 0 && !(c->steps & VM_STEP_JOB) && !c->image)
		warm_up();
	return rc;
}

static int begin_job(const struct vm_config *c, const char **ret_step)
{
	int rc;

	*ret_step = "clock, entropy and host name";
	rc = set_identity(c);
	if (rc < 0)
		return rc;
	*ret_step = "root file system";
	rc = mount_root(c);
	if (rc == 0) {
		make_devices();
		*ret_step = "limits";
		rc = guest_limits(c);
	}
	return rc;
}

int guest_configure(const struct vm_config *c, const char **ret_step)
{
	int rc = 0;

	guest_config = *c;
	if (c->steps & VM_STEP_PREPARE)
		rc = prepare(c, ret_step);
	if (rc == 0 && c->steps & VM_STEP_JOB)
		rc = begin_job(c, ret_step);
	memset(guest_config.entropy, 0, sizeof(guest_config.entropy));
	return rc;
}
