/* A disk whose flushes take longer: every fsync and fdatasync of the process waits FLUSH_MS milliseconds more.
 *
 * Built and preloaded by bench/slow_disk.py. Python and SQLite both flush through these two functions of the C
 * library, so that all sides of a comparison meet the same disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int flushed(const char *name, int descriptor) {
    int (*flush)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int answer = flush(descriptor);
    const char *text = getenv("FLUSH_MS");
    long ms = text ? atol(text) : 0;
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&rest, &rest) != 0) {
    }
    return answer;
}

int fsync(int descriptor) { return flushed("fsync", descriptor); }
int fdatasync(int descriptor) { return flushed("fdatasync", descriptor); }
