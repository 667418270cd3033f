/* The reader of layers: bounded names, and no more content than the stream has. */
#include "fuzz.h"
#include "gateway/base/cleanup.h"
#include "gateway/image/tar.h"

static ssize_t read_input(void *ctx, void *buf, size_t len)
{
	struct input *in = ctx;
	size_t n = len < in->len ? len : in->len;

	memcpy(buf, take(in, n), n);
	return (ssize_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tar_entry e;
	struct input in = { data, size };
	struct ak_err err = { "" };
	char buf[300];
	struct tar t;
	ssize_t n = 0;
	int rc;

	tar_init(&t, read_input, &in);
	while ((rc = tar_next(&t, &e, &err)) > 0) {
		uint64_t total = 0;

		must(e.kind < TAR_KIND_NUM && memchr(e.name, '\0', sizeof(e.name)) && memchr(e.target, '\0', sizeof(e.target)));
		must(e.mode <= 07777 && (e.kind == TAR_FILE || e.size == 0));
		/* Every second entry is skipped, not read. */
		while (in.len % 2 && (n = tar_read(&t, buf, sizeof(buf), &err)) > 0)
			total += (uint64_t)n;
		must(total <= size && total <= e.size);
	}
	must(rc == 0 || err.text[0]);
	return 0;
}
