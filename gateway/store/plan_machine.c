/* What a command expects of the machine that it runs on, as far as it depends on the caller: see store/plan_parts.h. */
#include "gateway/store/plan_parts.h"

#include "gateway/base/cleanup.h"

#include <stdlib.h>
#include <string.h>

/* Where programs look for certificate authorities. A file that every sandbox sees may be named inside as well. */
static const char *const authorities_env[] = { "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
	"CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CODEX_CA_CERTIFICATE" };
static const char *const authorities[] = { "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust", "/usr", "/opt" };

/* Whether every sandbox sees PATH, a file or folder of certificates. */
static bool is_shown_authority(const char *path)
{
	bool shown = false;

	for (size_t i = 0; i < ARRAY_SIZE(authorities) && !shown; i++)
		shown = project_inside(path, authorities[i]);
	return shown && !strstr(path, "/../");
}

int plan_authorities(struct run_plan *plan)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(authorities_env) && rc == 0; i++) {
		const char *value = getenv(authorities_env[i]);

		if (value && is_shown_authority(value))
			rc = plan_env_setf(plan, authorities_env[i], value, PLAN_FROM_AUTHORITIES);
	}
	return rc;
}
