/* SHA-256 against the vectors of FIPS 180-4 and the sums of every length around the block size, fed in every split. */
#include "gateway/base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void digest(const void *data, size_t len, size_t step, char hex[static SHA256_HEX])
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	for (size_t at = 0; at < len; at += step)
		sha256_add(&s, (const char *)data + at, len - at < step ? len - at : step);
	sha256_done(&s, sum);
	sha256_hex(sum, hex);
}

static void published_vectors(void **state)
{
	static const struct {
		const char *text, *hex;
	} vectors[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
			"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	static char million[1000000];
	char hex[SHA256_HEX];

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		digest(vectors[i].text, strlen(vectors[i].text), 64, hex);
		assert_string_equal(hex, vectors[i].hex);
	}
	memset(million, 'a', sizeof(million));
	digest(million, sizeof(million), 4096, hex);
	assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void how_it_is_fed_does_not_matter(void **state)
{
	uint8_t data[200];
	char whole[SHA256_HEX], parts[SHA256_HEX];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37);
	for (size_t len = 1; len <= sizeof(data); len++) {
		digest(data, len, len, whole);
		for (size_t step = 1; step < 70; step += 9) {
			digest(data, len, step, parts);
			assert_string_equal(parts, whole);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_vectors),
		cmocka_unit_test(how_it_is_fed_does_not_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
