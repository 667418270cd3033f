/* What the files of this folder share: checked values of JSON on their way into a request, and the setters of the table. */
#ifndef AK_FIELD_INTERNAL_H
#define AK_FIELD_INTERNAL_H

#include "gateway/field/field.h"

/* Where checked values go. */
struct field_sink {
	struct run_request *o;
	struct field_mem *mem;
};

/* fields_check and, unless SINK is NULL, fields_decode. */
int fields_walk(
	enum field_verb verb, enum field_front front, const cJSON *obj, const struct field_sink *sink, struct ak_err *err);

/* Prepend "--memory" or "memory_mb"; returns RC. */
int field_place(const struct field *f, enum field_front front, int rc, struct ak_err *err);

/* Is the LEN letters at WORD one of "a|b|c"? */
bool field_is_choice(const char *choices, const char *word, size_t len);

/* A member of a JSON object as "K=V", and a list of strings as an argv, both in the sink's memory. */
int field_put_pair(const struct field_sink *sink, const struct field *f, const char *key, const char *value, struct ak_err *err);
int field_put_argv(const struct field_sink *sink, const cJSON *list, struct ak_err *err);

int field_set_mode(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_profile(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_agent_state(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_network(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_vcpus(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_set_pids(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_variable(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
int field_add_rule(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);

#endif
