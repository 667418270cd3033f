/*
 * Verification of a chain: see log/audit.h. The files alone prove that no record was altered, moved or removed from the middle. Only
 * evidence from other sources (struct audit_proof) shows that none is missing at the end and that the chain was not rewritten.
 */
#include "gateway/log/audit_line.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verify {
	struct audit_reader reader;
	struct audit_chain chain;
	const struct audit_proof *proof; /* may be NULL */
	struct audit_mac mac;
	size_t mark; /* the next mark of the proof */
	bool after_first; /* the previous record was in NAME.first */
	uint64_t gap_from, gap_to; /* missing records between NAME.first and the other files */
	uint64_t gone_from, gone_to; /* records that a "rotate" record declares deleted */
	uint64_t kept; /* number of records in NAME.kept at the last rotation … */
	char kept_hash[SHA256_HEX]; /* … and the hash of the last one */
	bool newest_is_empty; /* the newest file has no record yet, so its "rotate" record is missing */
	uint64_t torn; /* bytes of broken lines that a record must attest */
	char torn_name[PATH_MAX];
	uint64_t torn_line;
	uint64_t torn_after; /* seq */
	bool torn_cut; /* without a newline */
};

static int torn_unattested(const struct verify *v, struct ak_err *err)
{
	return ak_fail(err, EBADMSG, "%s: line %llu: seq %llu: %s", v->torn_name, (unsigned long long)v->torn_line,
		(unsigned long long)v->torn_after + 1,
		v->torn_cut ? "cut short" : "not a record, or changed after it was written");
}

static void note_torn(struct verify *v, size_t len, bool whole)
{
	if (!v->torn) {
		v->torn_cut = !whole;
		memcpy(v->torn_name, v->reader.name, sizeof(v->torn_name));
		v->torn_line = v->reader.line;
		v->torn_after = v->chain.last_seq;
	}
	v->torn += len ? len : 1; /* count an empty line too: writers never leave one, and it must not pass as zero bytes */
}

static int fail_at(const struct verify *v, uint64_t seq, const char *why, struct ak_err *err)
{
	return ak_fail(err, EBADMSG, "%s: line %llu: seq %llu: %s", v->reader.name, (unsigned long long)v->reader.line,
		(unsigned long long)seq, why);
}

/* ---- order ---- */

/* After NAME.first, records may be missing: once, and a "rotate" record must declare them. */
static bool is_gap(struct verify *v, const struct audit_link *link)
{
	if (!v->after_first || v->reader.number == AUDIT_NUMBER_FIRST || link->seq <= v->chain.last_seq + 1)
		return false;
	v->gap_from = v->chain.last_seq + 1;
	v->gap_to = link->seq - 1;
	v->chain.gone = v->gap_to - v->gap_from + 1;
	return true;
}

static int check_order(struct verify *v, const struct audit_link *link, struct ak_err *err)
{
	const struct audit_chain *c = &v->chain;
	char why[128];

	if (c->count == 0 && link->seq != 1)
		snprintf(why, sizeof(why), "the records before it are missing");
	else if (c->count == 0 && strcmp(link->prev, AUDIT_NO_PREV) != 0)
		snprintf(why, sizeof(why), "the first record has a predecessor");
	else if (c->count == 0 || is_gap(v, link))
		return 0;
	else if (link->seq > c->last_seq + 1)
		snprintf(why, sizeof(why), "%llu records before it are missing",
			(unsigned long long)(link->seq - c->last_seq - 1));
	else if (link->seq <= c->last_seq)
		snprintf(why, sizeof(why), "out of order or twice: it comes after seq %llu", (unsigned long long)c->last_seq);
	else if (strcmp(link->prev, c->last_hash) != 0)
		snprintf(why, sizeof(why), "does not follow from the record before it");
	else
		return 0;
	return fail_at(v, link->seq, why, err);
}

/* ---- evidence from other sources ---- */

/*
 * Records older than the key have no MAC. The proof says which ones they are; their own time stamps prove nothing.
 */
static int check_mac(struct verify *v, const struct audit_link *link, struct ak_err *err)
{
	char mac[AUDIT_MAC_HEX];

	v->chain.macs += link->mac[0] != '\0';
	if (!v->mac.on)
		return 0;
	if (!link->mac[0])
		return link->seq <= v->proof->keyless_until ? 0 : fail_at(v, link->seq, "has no MAC", err);
	audit_mac_print(&v->mac, link->seq, link->digest, mac);
	return strcmp(mac, link->mac) == 0 ? 0 : fail_at(v, link->seq, "its MAC was not made with this key", err);
}

/* The marks are sorted by number; skip those of records that rotation deleted. */
static int check_marks(struct verify *v, const struct audit_link *link, struct ak_err *err)
{
	const struct audit_proof *p = v->proof;

	for (; p && v->mark < p->n_marks && p->marks[v->mark].seq <= link->seq; v->mark++) {
		if (p->marks[v->mark].seq == link->seq && strcmp(p->marks[v->mark].hash, link->hash) != 0)
			return fail_at(v, link->seq, "differs from the record that the events log has a mark of", err);
	}
	return 0;
}

static int check_points(const struct verify *v, const struct audit_link *link, struct ak_err *err)
{
	for (size_t i = 0; v->proof && i < AUDIT_POINTS; i++) {
		char why[128];

		if (v->proof->points[i].seq != link->seq || !strcmp(v->proof->points[i].hash, link->hash))
			continue;
		snprintf(why, sizeof(why), "differs from the record with which %s", v->proof->points[i].where);
		return fail_at(v, link->seq, why, err);
	}
	return 0;
}

/* Read which records a "rotate" record declares deleted. */
static void note_rotation(struct verify *v, const char *line, size_t len)
{
	static const char mark[] = ",\"kept_hash\":\"";
	const char *hash;

	if (!memmem(line, len, "\"event\":\"rotate\"", 16))
		return;
	v->gone_from = audit_line_number(line, len, ",\"gone_from\":");
	v->gone_to = audit_line_number(line, len, ",\"gone_to\":");
	v->kept = audit_line_number(line, len, ",\"kept\":");
	hash = memmem(line, len, mark, strlen(mark));
	if (hash && (size_t)(line + len - hash) > strlen(mark) + SHA256_HEX)
		snprintf(v->kept_hash, sizeof(v->kept_hash), "%s", hash + strlen(mark));
}

/* ---- the whole chain ---- */

static void take(struct verify *v, const struct audit_link *link)
{
	v->chain.tears += v->torn > 0;
	v->torn = 0;
	if (v->chain.count++ == 0)
		v->chain.first_seq = link->seq;
	v->chain.last_seq = link->seq;
	memcpy(v->chain.last_hash, link->hash, sizeof(v->chain.last_hash));
	v->after_first = v->reader.number == AUDIT_NUMBER_FIRST;
	v->newest_is_empty = v->reader.number != 0;
}

static int verify_line(struct verify *v, const char *line, size_t len, bool whole, struct ak_err *err)
{
	struct audit_link link;
	int rc;

	if (!whole || !audit_link_parse(line, len, &link)) {
		note_torn(v, len, whole);
		return 0;
	}
	if (v->torn != link.torn)
		return v->torn ? torn_unattested(v, err) : fail_at(v, link.seq, "attests a torn line that is not there", err);
	rc = check_order(v, &link, err);
	if (rc == 0)
		rc = check_mac(v, &link, err);
	if (rc == 0)
		rc = check_points(v, &link, err);
	if (rc == 0)
		rc = check_marks(v, &link, err);
	if (rc < 0)
		return rc;
	note_rotation(v, line, len);
	take(v, &link);
	return 0;
}

/* A writer may be in the middle of a line: wait briefly before treating it as torn. */
static int next_settled(struct audit_reader *r, char **line, size_t *len, bool *whole)
{
	for (int tries = 0; tries < 10; tries++) {
		int rc = audit_reader_next(r, false, line, len, whole);

		if (rc != 0 || r->len == 0)
			return rc;
		poll(NULL, 0, 10);
	}
	return audit_reader_next(r, true, line, len, whole);
}

static int check_gap(const struct verify *v, struct ak_err *err)
{
	bool attested = v->gone_from == v->gap_from && v->gone_to >= v->gap_to;

	/* A writer may have been killed between renaming the files and writing the first record of the new one. */
	if (!v->gap_to || attested || v->newest_is_empty)
		return 0;
	return ak_fail(err, EBADMSG, "%s: seq %llu to %llu are missing, and no record says that they were rotated away",
		v->reader.path, (unsigned long long)v->gap_from, (unsigned long long)v->gap_to);
}

static int check_end(const struct verify *v, struct ak_err *err)
{
	const struct audit_proof *p = v->proof;

	if (p && v->mark < p->n_marks)
		return ak_fail(err, EBADMSG, "%s: ends with seq %llu, but the events log has a mark of seq %llu", v->reader.path,
			(unsigned long long)v->chain.last_seq, (unsigned long long)p->marks[p->n_marks - 1].seq);
	for (size_t i = 0; v->proof && i < AUDIT_POINTS; i++) {
		if (v->proof->points[i].seq > v->chain.last_seq)
			return ak_fail(err, EBADMSG, "%s: ends with seq %llu, but %s with seq %llu", v->reader.path,
				(unsigned long long)v->chain.last_seq, v->proof->points[i].where,
				(unsigned long long)v->proof->points[i].seq);
	}
	return check_gap(v, err);
}

static int verify_all(struct verify *v, struct ak_err *err)
{
	bool whole;
	size_t len;
	char *line;
	int rc;

	while ((rc = next_settled(&v->reader, &line, &len, &whole)) > 0) {
		rc = verify_line(v, line, len, whole, err);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot read '%s'", v->reader.name);
	return v->torn ? torn_unattested(v, err) : check_end(v, err);
}

/* NAME.kept must contain what it had at the last rotation. The other files still have everything after that. */
static int verify_kept(const struct verify *v, struct ak_err *err)
{
	struct audit_proof proof = { .kind = "kept", .points = { { v->kept, v->kept_hash, "the log was rotated" } } };
	struct audit_chain chain;
	char path[PATH_MAX];
	int rc;

	if (!v->kept || audit_file_name(v->reader.path, AUDIT_NUMBER_KEPT, path, sizeof(path)) < 0)
		return 0;
	if (v->proof) {
		proof.key = v->proof->key;
		proof.name = v->proof->name;
	}
	rc = audit_verify_log(path, &proof, &chain, err);
	return rc == -ENOENT ? ak_fail(err, EBADMSG, "%s: missing; it had %llu records", path, (unsigned long long)v->kept) : rc;
}

int audit_verify_log(const char *path, const struct audit_proof *proof, struct audit_chain *ret, struct ak_err *err)
{
	struct verify *v = calloc(1, sizeof(*v)); /* too large for the stack */
	int rc;

	if (!v)
		return ak_fail(err, ENOMEM, "out of memory");
	v->proof = proof;
	if (proof && proof->key)
		audit_mac_init(&v->mac, proof->key, proof->kind, proof->name, 0);
	rc = audit_reader_open_plain(&v->reader, path, err);
	if (rc == 0)
		rc = verify_all(v, err);
	if (rc == 0)
		rc = verify_kept(v, err);
	if (rc == 0)
		*ret = v->chain;
	audit_reader_done(&v->reader);
	free(v);
	return rc;
}

int audit_verify_chain(const char *path, struct audit_chain *ret, struct ak_err *err)
{
	return audit_verify_log(path, NULL, ret, err);
}
