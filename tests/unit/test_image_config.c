/* Manifest and configuration of an image: what is taken from them, and what is refused. */
#include "gateway/base/cleanup.h"
#include "gateway/image/image.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include <cmocka.h>

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define CONF "\"config\":{\"digest\":\"sha256:" A64 "\"}"
#define LAYER(type) "{\"mediaType\":\"" type "\",\"digest\":\"sha256:" B64 "\"}"
#define OCI_LAYER "application/vnd.oci.image.layer.v1.tar"

static int manifest(const char *text, struct image_config *c, struct ak_err *err)
{
	char id[SHA256_HEX];

	*c = (struct image_config){ .n_layers = 0 };
	return image_manifest_parse(text, strlen(text), c, id, err);
}

static void a_manifest_names_its_layers(void **state)
{
	struct image_config c;
	struct ak_err err;

	assert_int_equal(manifest("{" CONF ",\"layers\":[" LAYER(OCI_LAYER "+gzip") "," LAYER(OCI_LAYER "+zstd") "," LAYER(
					  OCI_LAYER) "," LAYER("application/vnd.docker.image.rootfs.diff.tar.gzip") "]}",
				 &c, &err),
		0);
	assert_int_equal(c.n_layers, 4);
	assert_int_equal(c.layers[0].packing, IMAGE_GZIP);
	assert_int_equal(c.layers[1].packing, IMAGE_ZSTD);
	assert_int_equal(c.layers[2].packing, IMAGE_PLAIN);
	assert_int_equal(c.layers[3].packing, IMAGE_GZIP);
	assert_string_equal(c.layers[3].blob, B64);
}

static void a_bad_manifest_is_refused_with_its_place(void **state)
{
	static const char *const rows[][2] = {
		{ "", "" },
		{ "[]", "" },
		{ "{}", "no config or no layers" },
		{ "{" CONF "}", "no config or no layers" },
		{ "{" CONF ",\"layers\":[{}]}", "layers[0]: digest" },
		{ "{" CONF ",\"layers\":[" LAYER("application/x-encrypted") "]}", "layers[0]: mediaType" },
		{ "{\"config\":{\"digest\":\"sha256:../../../../etc/passwd\"},\"layers\":[]}", "digest" },
		{ "{" CONF "," CONF ",\"layers\":[]}", "config" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct image_config c;
		struct ak_err err = { "" };

		assert_true(manifest(rows[i][0], &c, &err) < 0);
		assert_non_null(strstr(err.text, rows[i][1]));
	}
}

static void too_many_layers_are_refused(void **state)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct image_config c;
	struct ak_err err;

	fprintf(f, "{" CONF ",\"layers\":[");
	for (int i = 0; i <= IMAGE_LAYERS_MAX; i++)
		fprintf(f, "%s" LAYER(OCI_LAYER), i ? "," : "");
	fprintf(f, "]}");
	fclose(f);
	assert_int_equal(manifest(text, &c, &err), -E2BIG);
	free(text);
}

static int config(const char *text, struct image_config *c, struct ak_err *err)
{
	*c = (struct image_config){ .n_layers = 1 };
	return image_config_parse(text, strlen(text), c, err);
}

#define ROOTFS "\"rootfs\":{\"diff_ids\":[\"sha256:" B64 "\"]}"

static void a_configuration_says_how_to_run_it(void **state)
{
	struct image_config c;
	struct ak_err err;

	assert_int_equal(
		config("{\"os\":\"linux\"," ROOTFS
		       ",\"config\":{\"Env\":[\"A=b\",\"C=\"],\"User\":\"node:staff\",\"WorkingDir\":\"/w\",\"Entrypoint\":[\"e\"],"
		       "\"Cmd\":[\"c\",\"\"],\"Labels\":{\"k\":\"v\"},\"ExposedPorts\":{}}}",
			&c, &err),
		0);
	assert_string_equal(c.env[1], "C=");
	assert_null(c.env[2]);
	assert_string_equal(c.user, "node:staff");
	assert_string_equal(c.workdir, "/w");
	assert_string_equal(c.entrypoint[0], "e");
	assert_string_equal(c.cmd[1], "");
	assert_string_equal(json_text(c.labels, "k", ""), "v");
	assert_string_equal(c.layers[0].content, B64);
	image_config_done(&c);
}

static void what_is_absent_null_or_empty_is_none(void **state)
{
	static const char *const rows[] = {
		"{" ROOTFS "}", "{" ROOTFS ",\"config\":null}",
		"{" ROOTFS
		",\"config\":{\"Env\":null,\"User\":\"\",\"WorkingDir\":\"\",\"Entrypoint\":null,\"Cmd\":null,\"Labels\":null}}"
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct image_config c;
		struct ak_err err;

		assert_int_equal(config(rows[i], &c, &err), 0);
		assert_null(c.env);
		assert_null(c.user);
		assert_null(c.workdir);
		assert_null(c.cmd);
		image_config_done(&c);
	}
}

static void a_bad_configuration_is_refused(void **state)
{
	static const char *const rows[][2] = {
		{ "{}", "diff_ids: 0 for 1 layers" },
		{ "{\"os\":\"windows\"," ROOTFS "}", "windows" },
		{ "{\"architecture\":\"s390x\"," ROOTFS "}", "s390x" },
		{ "{\"rootfs\":{\"diff_ids\":[\"x\"]}}", "diff_ids[0]" },
		{ "{" ROOTFS ",\"config\":{\"Env\":[\"novalue\"]}}", "Env[0]" },
		{ "{" ROOTFS ",\"config\":{\"Env\":[\"=x\"]}}", "Env[0]" },
		{ "{" ROOTFS ",\"config\":{\"Env\":[1]}}", "Env" },
		{ "{" ROOTFS ",\"config\":{\"WorkingDir\":\"../x\"}}", "WorkingDir" },
		{ "{" ROOTFS ",\"config\":{\"Cmd\":\"sh\"}}", "Cmd" },
		{ "{" ROOTFS ",\"config\":[]}", "config" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct image_config c;
		struct ak_err err = { "" };

		assert_true(config(rows[i][0], &c, &err) < 0);
		assert_non_null(strstr(err.text, rows[i][1]));
		image_config_done(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_manifest_names_its_layers),
		cmocka_unit_test(a_bad_manifest_is_refused_with_its_place),
		cmocka_unit_test(too_many_layers_are_refused),
		cmocka_unit_test(a_configuration_says_how_to_run_it),
		cmocka_unit_test(what_is_absent_null_or_empty_is_none),
		cmocka_unit_test(a_bad_configuration_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
