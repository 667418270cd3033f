/* Names: comparison, printing, and reverse names. */
#include "dnsproxy/wire.h"

#include "gateway/base/number.h"

#include <errno.h>
#include <string.h>

bool dns_name_eq(const struct dns_name *a, const struct dns_name *b)
{
	return a->len == b->len && memcmp(a->wire, b->wire, a->len) == 0;
}

static bool plain_octet(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

static char *put_octet(char *out, uint8_t c)
{
	if (plain_octet(c)) {
		*out++ = (char)c;
		return out;
	}
	*out++ = '\\';
	*out++ = (char)('0' + c / 100);
	*out++ = (char)('0' + c / 10 % 10);
	*out++ = (char)('0' + c % 10);
	return out;
}

void dns_name_text(const struct dns_name *name, char ret[static DNS_WIRE_TEXT_MAX])
{
	char *out = ret;
	size_t off = 0;

	/* At most 255 octets of at most four characters each, and no more dots than length octets: it fits. */
	while (off < name->len && name->wire[off] != 0) {
		size_t label = name->wire[off++];

		if (out != ret)
			*out++ = '.';
		for (size_t i = 0; i < label && off < name->len; i++)
			out = put_octet(out, name->wire[off++]);
	}
	*out = '\0';
}

int dns_name_from_text(const char *text, struct dns_name *ret)
{
	struct dns_name name = { .len = 0 };
	size_t off = 0;

	while (*text) {
		size_t label = strcspn(text, ".");

		/* a length octet, the label, and room for the root */
		if (label == 0 || label > 63 || off + 1 + label + 1 > DNS_WIRE_NAME_MAX)
			return -EINVAL;
		name.wire[off++] = (uint8_t)label;
		memcpy(name.wire + off, text, label);
		off += label;
		text += label;
		if (*text == '.')
			text++;
	}
	name.wire[off++] = 0;
	name.len = (uint8_t)off;
	*ret = name;
	return 0;
}

/* Parse a decimal label 0…255 without leading zeros; -1 if invalid. */
static int decimal_label(const uint8_t *label, size_t len)
{
	int value = 0;

	if (len == 0 || len > 3 || (len > 1 && label[0] == '0'))
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (label[i] < '0' || label[i] > '9')
			return -1;
		value = value * 10 + (label[i] - '0');
	}
	return value <= 255 ? value : -1;
}

static bool reverse_v4(const struct dns_name *name, struct ak_addr *ret)
{
	static const uint8_t suffix[] = "\7in-addr\4arpa";
	size_t off = 0;
	struct ak_addr addr = { .family = AF_INET };

	for (int i = 3; i >= 0; i--) {
		size_t label = name->wire[off];
		int value = off + 1 + label < name->len ? decimal_label(name->wire + off + 1, label) : -1;

		if (value < 0)
			return false;
		addr.bytes[i] = (uint8_t)value;
		off += 1 + label;
	}
	if (name->len - off != sizeof(suffix) || memcmp(name->wire + off, suffix, sizeof(suffix)) != 0)
		return false;
	*ret = addr;
	return true;
}

static bool reverse_v6(const struct dns_name *name, struct ak_addr *ret)
{
	static const uint8_t suffix[] = "\3ip6\4arpa";
	struct ak_addr addr = { .family = AF_INET6 };

	if (name->len != 64 + sizeof(suffix) || memcmp(name->wire + 64, suffix, sizeof(suffix)) != 0)
		return false;
	for (size_t i = 0; i < 32; i++) {
		int digit = name->wire[2 * i] == 1 ? ak_hex_digit((char)name->wire[2 * i + 1]) : -1;

		if (digit < 0)
			return false;
		addr.bytes[15 - i / 2] |= (uint8_t)(i % 2 ? digit << 4 : digit);
	}
	*ret = addr;
	return true;
}

bool dns_name_reverse(const struct dns_name *name, struct ak_addr *ret)
{
	return reverse_v4(name, ret) || reverse_v6(name, ret);
}
