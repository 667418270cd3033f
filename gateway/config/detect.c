/* Images by language: see config/detect.h. */
#include "gateway/config/detect.h"

#include "gateway/base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define WORDS 8

struct language {
	const char *name, *image;
	const char *files[WORDS]; /* "*.x": every file that ends in .x */
	const char *commands[WORDS];
};

/* The first language with a matching file counts. */
static const struct language languages[] = {
	{ "JavaScript", "node:22-alpine", { "package.json", "yarn.lock", "pnpm-lock.yaml" },
		{ "node", "npm", "npx", "yarn", "pnpm", "bun" } },
	{ "Python", "python:3.12-alpine", { "pyproject.toml", "requirements.txt", "Pipfile" },
		{ "python", "python3", "pip", "poetry", "uv", "pytest" } },
	{ "Rust", "rust:1.85-alpine", { "Cargo.toml" }, { "cargo", "rustc" } },
	{ "Go", "golang:1.23-alpine", { "go.mod" }, { "go", "gofmt" } },
	{ "Ruby", "ruby:3.3-alpine", { "Gemfile" }, { "ruby", "bundle", "rails", "rake" } },
	{ "Java", "eclipse-temurin:21-alpine", { "pom.xml", "build.gradle", "*.kt" }, { "java", "javac", "mvn", "gradle" } },
	{ ".NET", "mcr.microsoft.com/dotnet/sdk:8.0", { "*.csproj", "*.sln" }, { "dotnet" } },
	{ "C", "gcc:14-bookworm", { "Makefile", "CMakeLists.txt" }, { "gcc", "g++", "make", "cmake" } },
	{ "PHP", "php:8.3-alpine", { "composer.json" }, { "php", "composer" } },
	{ "Elixir", "elixir:1.16-alpine", { "mix.exs" }, { "elixir", "mix" } },
	{ "Lua", "nickblah/lua:5.4-alpine", { "*.lua" }, { "lua", "luajit" } },
	{ "Terraform", "hashicorp/terraform:1.10", { "*.tf", "*.tfvars" }, { "terraform" } },
	{ "Shell", DETECT_DEFAULT, { "*.sh" }, { "bash", "sh", "zsh" } },
};

/* COMMAND has LEN bytes, perhaps with a path in front. */
static const struct language *by_command(const char *command, size_t len)
{
	for (size_t i = len; i > 0; i--) {
		if (command[i - 1] == '/') {
			command += i;
			len -= i;
			break;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(languages); i++) {
		for (const char *const *c = languages[i].commands; *c; c++) {
			if (strlen(*c) == len && !memcmp(*c, command, len))
				return &languages[i];
		}
	}
	return NULL;
}

static bool matches(const char *pattern, const char *name)
{
	size_t n = strlen(name), tail = strlen(pattern) - 1;

	if (pattern[0] != '*')
		return !strcmp(pattern, name);
	return n > tail && !strcmp(name + n - tail, pattern + 1);
}

static const struct language *by_file(const struct detect_ask *ask, const char **ret_name)
{
	for (size_t i = 0; i < ARRAY_SIZE(languages); i++) {
		for (const char *const *f = languages[i].files; *f; f++) {
			for (size_t n = 0; n < ask->n_names; n++) {
				if (matches(*f, ask->names[n])) {
					*ret_name = ask->names[n];
					return &languages[i];
				}
			}
		}
	}
	return NULL;
}

/* Lines are "process: [NAME=value…] command arguments"; the first with a command that we know counts. */
static const struct language *by_procfile(const char *text, const char **ret_line)
{
	while (text && *text) {
		size_t line = strcspn(text, "\n"), at = strcspn(text, ":\n");
		const struct language *found = NULL;

		*ret_line = text;
		for (at += at < line; at < line && !found;) {
			size_t n;

			at += strspn(text + at, " \t\r");
			n = strcspn(text + at, " \t\r\n");
			if (at >= line || !n)
				break;
			found = by_command(text + at, n);
			if (!memchr(text + at, '=', n))
				break; /* only what stands before the command is skipped */
			at += n;
		}
		if (found && text[0] != '#')
			return found;
		text += line + (text[line] == '\n');
	}
	return NULL;
}

static void answer(struct detect_answer *ret, enum detect_clue clue, const char *image, const struct language *l)
{
	ret->clue = clue;
	ret->image = l ? l->image : image;
	ret->language = l ? l->name : NULL;
}

void detect_image(const struct detect_ask *ask, struct detect_answer *ret)
{
	const struct language *l;
	const char *found = NULL;

	*ret = (struct detect_answer){ 0 };
	if (ask->option) {
		answer(ret, DETECT_OPTION, ask->option, NULL);
		snprintf(ret->why, sizeof(ret->why), "--image");
	} else if (ask->config) {
		answer(ret, DETECT_CONFIG, ask->config, NULL);
		snprintf(ret->why, sizeof(ret->why), "base_image of the file that --config names");
	} else if (ask->command && (l = by_command(ask->command, strlen(ask->command)))) {
		answer(ret, DETECT_COMMAND, NULL, l);
		snprintf(ret->why, sizeof(ret->why), "the command '%.64s'", ask->command);
	} else if (ask->settings) {
		answer(ret, DETECT_SETTINGS, ask->settings, NULL);
		snprintf(ret->why, sizeof(ret->why), "base_image of agentkernel.toml");
	} else if ((l = by_file(ask, &found))) {
		answer(ret, DETECT_FILE, NULL, l);
		snprintf(ret->why, sizeof(ret->why), "the project has '%.64s'", found);
	} else if ((l = by_procfile(ask->procfile, &found))) {
		answer(ret, DETECT_PROCFILE, NULL, l);
		snprintf(ret->why, sizeof(ret->why), "Procfile: '%.*s'",
			(int)(strcspn(found, "\r\n") < 64 ? strcspn(found, "\r\n") : 64), found);
	} else {
		answer(ret, DETECT_NOTHING, DETECT_DEFAULT, NULL);
		snprintf(ret->why, sizeof(ret->why), "nothing else fits");
	}
}
