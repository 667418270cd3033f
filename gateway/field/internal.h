/* Internal to gateway/field: decoding checked JSON values into a request, and the setters that the table refers to. */
#ifndef AK_FIELD_INTERNAL_H
#define AK_FIELD_INTERNAL_H

#include "gateway/field/field.h"

/* Where checked values are stored. */
struct field_sink {
	struct run_request *o;
	struct field_mem *mem;
};

/* Check OBJ (fields_check) and, unless SINK is NULL, store its values (fields_decode). */
int fields_walk(
	enum field_verb verb, enum field_front front, const cJSON *obj, const struct field_sink *sink, struct ak_err *err);

/* Prefix the error text with the field's name in FRONT ("--memory", "memory_mb"); returns RC. */
int field_place(const struct field *f, enum field_front front, int rc, struct ak_err *err);

/* Store a member of a JSON object as "K=V", a mount, and a list of strings as argv. SINK->mem owns the copies. SINK may be NULL for a mount. */
int field_put_pair(const struct field_sink *sink, const struct field *f, const char *key, const char *value, struct ak_err *err);
int field_put_mount(const struct field_sink *sink, const cJSON *item, struct ak_err *err);
int field_put_argv(const struct field_sink *sink, const cJSON *list, struct ak_err *err);

int field_set_name(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_mode(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_profile(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_agent_state(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_backend(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_image(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_network(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_fast(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_vcpus(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_pids(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_variable(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_env_file(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_publish(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_tool(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_mount(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_rule(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);

#endif
