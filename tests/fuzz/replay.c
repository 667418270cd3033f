/* Feed every file of the folders named on the command line to a fuzz harness: corpora as plain tests. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_dir(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	if (!dir) {
		perror(path);
		return -1;
	}
	for (struct dirent *e; (e = readdir(dir));) {
		_cleanup_free_ char *data = NULL;
		size_t len;

		if (e->d_name[0] == '.')
			continue;
		if (ak_read_file(dirfd(dir), e->d_name, 1 << 20, &data, &len) < 0) {
			perror(e->d_name);
			n = -1;
			break;
		}
		LLVMFuzzerTestOneInput((const uint8_t *)data, len);
		n++;
	}
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int n = replay_dir(argv[i]);

		if (n <= 0) {
			fprintf(stderr, "%s: no input was replayed\n", argv[i]);
			return 1;
		}
		total += n;
	}
	printf("%d inputs replayed\n", total);
	return total > 0 ? 0 : 1;
}
