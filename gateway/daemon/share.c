/*
 * Share equal policies. A compiled policy takes tens of kilobytes and most sandboxes use one of a few. Every sandbox is started by a fork, and
 * a fork takes longer the more memory this process uses.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"

#include <string.h>

static bool same(const struct shared_policy *s, const struct strbuf *text)
{
	return s->policy && s->text.len == text->len && !memcmp(s->text.data, text->data, text->len);
}

static void forget(struct shared_policy *s)
{
	policy_unref(TAKE(s->policy));
	strbuf_done(&s->text);
	s->text = (struct strbuf){ 0 };
}

struct policy *policy_share(struct daemon *d, struct policy *p)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct shared_policy *s;

	if (!p)
		return NULL;
	policy_print(p, &text);
	if (text.failed)
		return p;
	for (size_t i = 0; i < SHARED_MAX; i++) {
		if (same(&d->shared[i], &text)) {
			policy_unref(p);
			return policy_ref(d->shared[i].policy);
		}
	}
	s = &d->shared[d->next_shared++ % SHARED_MAX];
	forget(s);
	s->policy = policy_ref(p);
	s->text = text;
	text = (struct strbuf){ 0 };
	return p;
}

void policy_share_done(struct daemon *d)
{
	for (size_t i = 0; i < SHARED_MAX; i++)
		forget(&d->shared[i]);
}
