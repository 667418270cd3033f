/*
 * The part of libmnl that libnftnl and this folder use, for the program that is linked statically: Debian has no archive of libmnl.
 *
 * Only that program contains this file; every other build links the library itself. The functions are declared, and described, by its header. All of
 * them read or write netlink attributes (include/uapi/linux/netlink.h): a length, a type, the payload, and padding to four bytes.
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>

/* ---- messages ---- */

struct nlmsghdr *mnl_nlmsg_put_header(void *buf)
{
	struct nlmsghdr *nlh = buf;

	memset(buf, 0, MNL_NLMSG_HDRLEN);
	nlh->nlmsg_len = MNL_NLMSG_HDRLEN;
	return nlh;
}

void *mnl_nlmsg_put_extra_header(struct nlmsghdr *nlh, size_t size)
{
	void *at = (char *)nlh + nlh->nlmsg_len;

	memset(at, 0, MNL_ALIGN(size));
	nlh->nlmsg_len += MNL_ALIGN(size);
	return at;
}

void *mnl_nlmsg_get_payload(const struct nlmsghdr *nlh)
{
	return (char *)nlh + MNL_NLMSG_HDRLEN;
}

void *mnl_nlmsg_get_payload_offset(const struct nlmsghdr *nlh, size_t offset)
{
	return (char *)nlh + MNL_NLMSG_HDRLEN + MNL_ALIGN(offset);
}

void *mnl_nlmsg_get_payload_tail(const struct nlmsghdr *nlh)
{
	return (char *)nlh + MNL_ALIGN(nlh->nlmsg_len);
}

size_t mnl_nlmsg_get_payload_len(const struct nlmsghdr *nlh)
{
	return nlh->nlmsg_len - MNL_NLMSG_HDRLEN;
}

/* ---- attributes: read ---- */

uint16_t mnl_attr_get_type(const struct nlattr *attr)
{
	return attr->nla_type & NLA_TYPE_MASK;
}

uint16_t mnl_attr_get_payload_len(const struct nlattr *attr)
{
	return (uint16_t)(attr->nla_len - MNL_ATTR_HDRLEN);
}

void *mnl_attr_get_payload(const struct nlattr *attr)
{
	return (char *)attr + MNL_ATTR_HDRLEN;
}

uint8_t mnl_attr_get_u8(const struct nlattr *attr)
{
	return *(uint8_t *)mnl_attr_get_payload(attr);
}

uint16_t mnl_attr_get_u16(const struct nlattr *attr)
{
	return *(uint16_t *)mnl_attr_get_payload(attr);
}

uint32_t mnl_attr_get_u32(const struct nlattr *attr)
{
	return *(uint32_t *)mnl_attr_get_payload(attr);
}

uint64_t mnl_attr_get_u64(const struct nlattr *attr)
{
	uint64_t value;

	memcpy(&value, mnl_attr_get_payload(attr), sizeof(value)); /* attributes are aligned to four bytes only */
	return value;
}

const char *mnl_attr_get_str(const struct nlattr *attr)
{
	return mnl_attr_get_payload(attr);
}

bool mnl_attr_ok(const struct nlattr *attr, int len)
{
	return len >= (int)MNL_ATTR_HDRLEN && attr->nla_len >= MNL_ATTR_HDRLEN && attr->nla_len <= len;
}

struct nlattr *mnl_attr_next(const struct nlattr *attr)
{
	return (struct nlattr *)((char *)attr + MNL_ALIGN(attr->nla_len));
}

int mnl_attr_type_valid(const struct nlattr *attr, uint16_t max)
{
	if (mnl_attr_get_type(attr) <= max)
		return 1;
	errno = EOPNOTSUPP;
	return -1;
}

static bool payload_fits(const char *payload, size_t len, enum mnl_attr_data_type type)
{
	static const size_t least[MNL_TYPE_MAX] = { [MNL_TYPE_U8] = 1,
		[MNL_TYPE_U16] = 2,
		[MNL_TYPE_U32] = 4,
		[MNL_TYPE_U64] = 8,
		[MNL_TYPE_MSECS] = 8,
		[MNL_TYPE_STRING] = 1,
		[MNL_TYPE_NUL_STRING] = 1 };

	if (len < least[type])
		return false;
	if (type == MNL_TYPE_NUL_STRING)
		return payload[len - 1] == '\0';
	if (type == MNL_TYPE_NESTED)
		return len == 0 || len >= MNL_ATTR_HDRLEN;
	return type != MNL_TYPE_FLAG || len == 0;
}

int mnl_attr_validate(const struct nlattr *attr, enum mnl_attr_data_type type)
{
	if ((unsigned)type >= MNL_TYPE_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (payload_fits(mnl_attr_get_payload(attr), mnl_attr_get_payload_len(attr), type))
		return 0;
	errno = ERANGE;
	return -1;
}

static int each(const char *at, size_t len, mnl_attr_cb_t cb, void *data)
{
	int rc = MNL_CB_OK;

	while (rc > MNL_CB_STOP && mnl_attr_ok((const struct nlattr *)at, (int)len)) {
		size_t step = MNL_ALIGN(((const struct nlattr *)at)->nla_len);

		rc = cb((const struct nlattr *)at, data);
		len = step < len ? len - step : 0;
		at += step;
	}
	return rc;
}

int mnl_attr_parse(const struct nlmsghdr *nlh, unsigned offset, mnl_attr_cb_t cb, void *data)
{
	size_t len = mnl_nlmsg_get_payload_len(nlh), skip = MNL_ALIGN(offset);

	return skip < len ? each(mnl_nlmsg_get_payload_offset(nlh, offset), len - skip, cb, data) : MNL_CB_OK;
}

int mnl_attr_parse_nested(const struct nlattr *attr, mnl_attr_cb_t cb, void *data)
{
	return each(mnl_attr_get_payload(attr), mnl_attr_get_payload_len(attr), cb, data);
}

/* ---- attributes: write; the caller's buffer is large enough ---- */

void mnl_attr_put(struct nlmsghdr *nlh, uint16_t type, size_t len, const void *data)
{
	struct nlattr *attr = mnl_nlmsg_get_payload_tail(nlh);
	char *payload = mnl_attr_get_payload(attr);

	attr->nla_type = type;
	attr->nla_len = (uint16_t)(MNL_ATTR_HDRLEN + len);
	if (len)
		memcpy(payload, data, len);
	memset(payload + len, 0, MNL_ALIGN(len) - len);
	nlh->nlmsg_len += MNL_ALIGN(attr->nla_len);
}

void mnl_attr_put_u8(struct nlmsghdr *nlh, uint16_t type, uint8_t value)
{
	mnl_attr_put(nlh, type, sizeof(value), &value);
}

void mnl_attr_put_u16(struct nlmsghdr *nlh, uint16_t type, uint16_t value)
{
	mnl_attr_put(nlh, type, sizeof(value), &value);
}

void mnl_attr_put_u32(struct nlmsghdr *nlh, uint16_t type, uint32_t value)
{
	mnl_attr_put(nlh, type, sizeof(value), &value);
}

void mnl_attr_put_u64(struct nlmsghdr *nlh, uint16_t type, uint64_t value)
{
	mnl_attr_put(nlh, type, sizeof(value), &value);
}

void mnl_attr_put_str(struct nlmsghdr *nlh, uint16_t type, const char *text)
{
	mnl_attr_put(nlh, type, strlen(text), text);
}

void mnl_attr_put_strz(struct nlmsghdr *nlh, uint16_t type, const char *text)
{
	mnl_attr_put(nlh, type, strlen(text) + 1, text);
}

struct nlattr *mnl_attr_nest_start(struct nlmsghdr *nlh, uint16_t type)
{
	struct nlattr *start = mnl_nlmsg_get_payload_tail(nlh);

	start->nla_type = NLA_F_NESTED | type;
	nlh->nlmsg_len += MNL_ALIGN(sizeof(*start));
	return start;
}

void mnl_attr_nest_end(struct nlmsghdr *nlh, struct nlattr *start)
{
	start->nla_len = (uint16_t)((char *)mnl_nlmsg_get_payload_tail(nlh) - (char *)start);
}
