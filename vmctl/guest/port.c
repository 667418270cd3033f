/* Frames to the host. */
#include "agent.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

int port = -1;

static void write_all(const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = write(port, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) { /* no host: wait for one, the frame must not be cut */
			poll(NULL, 0, 10);
			continue;
		}
		data += n;
		len -= (size_t)n;
	}
}

void port_send(enum vm_frame_type type, uint16_t id, const void *a, size_t a_len, const void *b, size_t b_len)
{
	static uint8_t frame[VM_HEAD + VM_PAYLOAD_MAX];

	vm_head_put(frame, type, id, (uint32_t)(a_len + b_len));
	if (a_len)
		memcpy(frame + VM_HEAD, a, a_len);
	if (b_len)
		memcpy(frame + VM_HEAD + a_len, b, b_len);
	write_all(frame, VM_HEAD + a_len + b_len);
}

void port_text(enum vm_frame_type type, uint16_t id, uint32_t code, const char *text)
{
	uint8_t number[4];
	size_t len = strlen(text);

	vm_put32(number, code);
	port_send(type, id, number, sizeof(number), text, len > 400 ? 400 : len);
}
