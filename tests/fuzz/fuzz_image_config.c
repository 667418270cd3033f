/* Manifest and configuration of an image, which strangers wrote: what is accepted is within its bounds. The first byte chooses which. */
#include "fuzz.h"
#include "gateway/base/cleanup.h"
#include "gateway/image/image.h"

static bool is_hex(const char *text)
{
	return strlen(text) == SHA256_HEX - 1 && strspn(text, "0123456789abcdef") == SHA256_HEX - 1;
}

static void check_manifest(const char *text, size_t size)
{
	static struct image_config c;
	char id[SHA256_HEX] = "";
	struct ak_err err = { "" };

	if (image_manifest_parse(text, size, &c, id, &err) < 0) {
		must(err.text[0]);
		return;
	}
	must(is_hex(id) && c.n_layers <= IMAGE_LAYERS_MAX);
	for (size_t i = 0; i < c.n_layers; i++)
		must(is_hex(c.layers[i].blob) && c.layers[i].packing < IMAGE_PACKING_NUM);
}

static void check_config(const char *text, size_t size, size_t layers)
{
	struct image_config c = { .n_layers = layers };
	struct ak_err err = { "" };

	if (image_config_parse(text, size, &c, &err) < 0) {
		must(err.text[0]);
	} else {
		for (size_t i = 0; i < layers; i++)
			must(is_hex(c.layers[i].content));
		for (size_t i = 0; c.env && c.env[i]; i++)
			must(strchr(c.env[i], '=') && c.env[i][0] != '=');
		must(!c.workdir || c.workdir[0] == '/');
	}
	image_config_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *copy = malloc(size ? size : 1);
	char text[IMAGE_NAME_MAX], name[IMAGE_NAME_MAX], again[IMAGE_NAME_MAX];
	struct image_ref ref;
	struct ak_err err = { "" };

	if (!copy || size < 1 || size > 1u << 16)
		return 0;
	memcpy(copy, data + 1, size - 1);
	if (data[0] < 128) {
		check_manifest(copy, size - 1);
		check_config(copy, size - 1, data[0] % 4);
		return 0;
	}
	snprintf(text, sizeof(text), "%.*s", (int)(size - 1), copy);
	if (image_ref_parse(text, &ref, &err) < 0) {
		must(err.text[0]);
		return 0;
	}
	image_ref_print(&ref, name);
	must(name[0] && image_ref_parse(name, &ref, &err) == 0);
	image_ref_print(&ref, again);
	must(!strcmp(name, again));
	return 0;
}
