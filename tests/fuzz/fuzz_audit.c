/*
 * A log file may hold anything by the time it is read: the reader hands out every line once, a chain that verifies is whole, and what is printed of a
 * record is plain ASCII.
 */
#include "gateway/audit.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/netlog.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_line(struct netlog *log, const char *line, size_t len)
{
	struct netlog_rec rec;
	struct audit_link link;
	uint64_t when, again;
	char text[AUDIT_TIME_MAX];

	if (audit_link_parse(line, len, &link))
		must(strlen(link.hash) == SHA256_HEX - 1 && strlen(link.prev) == SHA256_HEX - 1);
	if (len < 64 && audit_time_parse(line, &when) == 0 && when < 253402300800000000ull)
		must(audit_time_parse(audit_time_print(when, text), &again) == 0 && again == when);
	if (netlog_rec_parse(line, len, &rec) < 0)
		return;
	netlog_add(log, &rec);
	netlog_rec_done(&rec);
}

static void print_all(struct netlog *log, FILE *out)
{
	struct netlog_row **rows = NULL;
	struct netlog_layout layout;
	size_t n = 0;

	if (netlog_rows(log, NETLOG_ALL, 0, 0, &rows, &n) < 0)
		return;
	netlog_layout_fit(&layout, rows, n, 120, 0, false);
	for (size_t i = 0; i < n; i++)
		netlog_print_row(&layout, rows[i], out);
	netlog_print_summary(rows, n, true, out);
	free(rows);
}

static void check_print(struct netlog *log)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return;
	print_all(log, out);
	fclose(out);
	for (size_t i = 0; i < len; i++) /* an arrow or an ellipsis of ours is UTF-8; a control character is no one's */
		must((unsigned char)text[i] >= ' ' || text[i] == '\n');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_close_ int fd = memfd_create("log", MFD_CLOEXEC);
	struct audit_reader r;
	struct audit_chain chain;
	struct ak_err err;
	char path[64], *line;
	size_t len, lines = 0;
	bool whole;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || netlog_new(&log) < 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (audit_reader_open(&r, path, &err) == 0) {
		while (audit_reader_next(&r, true, &line, &len, &whole) == 1) {
			must(line[len] == '\0' && ++lines <= size + 1);
			check_line(log, line, len);
		}
		audit_reader_done(&r);
	}
	check_print(log);
	if (audit_verify_chain(path, &chain, &err) == 0)
		must(chain.count == 0 || chain.last_seq - chain.first_seq + 1 == chain.count);
	return 0;
}
