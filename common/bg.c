/* Two lists under one lock: jobs that wait, jobs that ran. The eventfd wakes
 * the loop; the condition wakes the thread. */
#include "common/bg.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/error.h"
#include "common/list.h"

struct job {
    struct list link;
    bg_work_fn *work;
    bg_done_fn *done;
    void *arg;
    bool is_run;
};

struct bg {
    char name[16];
    size_t max_jobs, n_pending; /* loop's */
    struct event *event;
    int wake_fd;
    bool is_started;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t has_work;
    struct list waiting, finished;
    bool is_ending;
};

static void wake_loop(struct bg *bg)
{
    uint64_t one = 1;

    /* Only a full counter could fail, and then the loop is awake anyway. */
    while (write(bg->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static void *thread_main(void *arg)
{
    struct bg *bg = arg;

    pthread_setname_np(pthread_self(), bg->name);
    pthread_mutex_lock(&bg->lock);
    for (;;) {
        struct list *link;
        struct job *job;

        while (list_is_empty(&bg->waiting) && !bg->is_ending) {
            pthread_cond_wait(&bg->has_work, &bg->lock);
        }
        if (bg->is_ending) {
            break;
        }
        link = list_pop(&bg->waiting);
        job = list_item(link, struct job, link);
        pthread_mutex_unlock(&bg->lock);
        job->work(job->arg);
        job->is_run = true;
        pthread_mutex_lock(&bg->lock);
        list_push(&bg->finished, &job->link);
        wake_loop(bg);
    }
    pthread_mutex_unlock(&bg->lock);
    return NULL;
}

static void complete(struct bg *bg, struct list *link)
{
    struct job *job = list_item(link, struct job, link);

    bg->n_pending--;
    if (job->done) {
        job->done(job->arg, job->is_run);
    }
    free(job);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct bg *bg = arg;
    struct list ready;
    struct list *link;
    uint64_t count;

    (void)what;
    if (read(fd, &count, sizeof count) < 0) {
        return;
    }
    list_init(&ready);
    pthread_mutex_lock(&bg->lock);
    while ((link = list_pop(&bg->finished))) {
        list_push(&ready, link);
    }
    pthread_mutex_unlock(&bg->lock);
    while ((link = list_pop(&ready))) {
        complete(bg, link);
    }
}

/* The thread takes no signals: they belong to the loop. */
static int start_thread(struct bg *bg)
{
    sigset_t all;
    sigset_t before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&bg->thread, NULL, thread_main, bg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    bg->is_started = failed == 0;
    return failed;
}

struct bg *bg_create(struct event_base *base, const char *name, size_t max_jobs, struct gems_error *err)
{
    struct bg *bg = calloc(1, sizeof *bg);
    int failed;

    if (!bg) {
        gems_error_set(err, GEMS_E_NOMEM, "thread %s: no memory", name);
        return NULL;
    }
    snprintf(bg->name, sizeof bg->name, "%s", name);
    bg->max_jobs = max_jobs;
    list_init(&bg->waiting);
    list_init(&bg->finished);
    pthread_mutex_init(&bg->lock, NULL);
    pthread_cond_init(&bg->has_work, NULL);
    bg->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bg->wake_fd < 0) {
        gems_error_errno(err, errno, "thread %s: eventfd", name);
        goto out;
    }
    bg->event = event_new(base, bg->wake_fd, EV_READ | EV_PERSIST, on_wake, bg);
    if (!bg->event || event_add(bg->event, NULL) < 0) {
        gems_error_set(err, GEMS_E_NOMEM, "thread %s: no memory", name);
        goto out;
    }
    failed = start_thread(bg);
    if (failed == 0) {
        return bg;
    }
    gems_error_errno(err, failed, "thread %s: start", name);
out:
    bg_destroy(bg);
    return NULL;
}

void bg_destroy(struct bg *bg)
{
    struct list *link;

    if (!bg) {
        return;
    }
    if (bg->is_started) {
        pthread_mutex_lock(&bg->lock);
        bg->is_ending = true;
        pthread_cond_signal(&bg->has_work);
        pthread_mutex_unlock(&bg->lock);
        pthread_join(bg->thread, NULL);
    }
    while ((link = list_pop(&bg->finished)) || (link = list_pop(&bg->waiting))) {
        complete(bg, link);
    }
    if (bg->event) {
        event_free(bg->event);
    }
    if (bg->wake_fd >= 0) {
        close(bg->wake_fd);
    }
    pthread_cond_destroy(&bg->has_work);
    pthread_mutex_destroy(&bg->lock);
    free(bg);
}

int bg_submit(struct bg *bg, bg_work_fn *work, bg_done_fn *done, void *arg, struct gems_error *err)
{
    struct job *job;

    if (bg->n_pending >= bg->max_jobs) {
        return gems_error_set(err, GEMS_E_STATE, "thread %s: %zu jobs are waiting already", bg->name,
                              bg->n_pending);
    }
    job = calloc(1, sizeof *job);
    if (!job) {
        return gems_error_set(err, GEMS_E_NOMEM, "thread %s: no memory", bg->name);
    }
    job->work = work;
    job->done = done;
    job->arg = arg;
    bg->n_pending++;
    pthread_mutex_lock(&bg->lock);
    list_push(&bg->waiting, &job->link);
    pthread_cond_signal(&bg->has_work);
    pthread_mutex_unlock(&bg->lock);
    return GEMS_OK;
}

size_t bg_pending(const struct bg *bg)
{
    return bg->n_pending;
}
