/* The clock of a process, moved: the file that MOVED_CLOCK names holds by how many seconds, as 64 bits.
 *
 * Preloaded by benchmarks/moved_clock.py; without the variable the clock stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t standing = 0;
static volatile const int64_t *moved_by_seconds = &standing;
static int (*clock_of_the_system)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    clock_of_the_system = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("MOVED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        moved_by_seconds = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!clock_of_the_system)
        begin();
    int status = clock_of_the_system(clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *moved_by_seconds;
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec exact;
    int status = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return status;
}

time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at)
        *at = exact.tv_sec;
    return exact.tv_sec;
}
