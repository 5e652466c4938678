/* SPDX-License-Identifier: Apache-2.0
 * A server with one thread that receives every request and several workers that answer them.
 *
 * It is built as the servers of TailBench: all workers depend on the thread that receives, and
 * while one of them holds a lock of the engine, on that one. Requests are lines on a Unix socket.
 * A client waits for the answer before it sends the next request on a connection. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "store.h"

enum { CONNECTIONS = 128, REQUEST_BYTES = 512, WORKERS = 64 };

struct connection {
    int fd, queued, users; /* users: the receiver, and each worker that has a request of it */
    size_t have;
    char request[REQUEST_BYTES];
};

static struct connection *waiting[CONNECTIONS];
static size_t first, count;
static int opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;

_Noreturn void store_die(const char *what, const char *detail)
{
    fprintf(stderr, "store: %s: %s\n", what, detail);
    exit(2);
}

/* One user less; the lock is held. */
static void leave(struct connection *c)
{
    if (--c->users)
        return;
    close(c->fd);
    free(c);
    opened--;
}

static void *work(void *unused)
{
    char answer[ANSWER_BYTES];
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!count)
            pthread_cond_wait(&arrived, &lock);
        struct connection *c = waiting[first];
        first = (first + 1) % CONNECTIONS, count--;
        pthread_mutex_unlock(&lock);
        size_t n = store_answer(c->request, answer);
        pthread_mutex_lock(&lock);
        c->queued = 0, c->have = 0; /* before the answer, after which the next request may come */
        pthread_mutex_unlock(&lock);
        if (send(c->fd, answer, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            shutdown(c->fd, SHUT_RDWR); /* the receiver sees the end */
        pthread_mutex_lock(&lock);
        leave(c);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Whether the connection lasts. */
static int receive(struct connection *c)
{
    char received[REQUEST_BYTES];
    ssize_t n = recv(c->fd, received, sizeof received, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    pthread_mutex_lock(&lock);
    int lasts = n > 0 && !c->queued && c->have + (size_t)n < REQUEST_BYTES;
    if (lasts) {
        memcpy(c->request + c->have, received, (size_t)n);
        c->have += (size_t)n;
        if (received[n - 1] == '\n') {
            c->request[c->have - 1] = 0;
            c->queued = 1, c->users++;
            waiting[(first + count++) % CONNECTIONS] = c;
            pthread_cond_signal(&arrived);
        }
    }
    pthread_mutex_unlock(&lock);
    return lasts;
}

static int listen_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char early[sizeof a.sun_path];
    /* Bound under another name, so that the path appears once connecting to it works. */
    if (snprintf(early, sizeof early, "%s.early", path) >= (int)sizeof early)
        store_die("the socket's path is too long", path);
    strcpy(a.sun_path, early);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, CONNECTIONS) || rename(early, path))
        store_die(path, strerror(errno));
    return fd;
}

static void serve(int listener)
{
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        struct epoll_event events[CONNECTIONS];
        int n = epoll_wait(poll, events, CONNECTIONS, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c) {
                if (!receive(c)) {
                    epoll_ctl(poll, EPOLL_CTL_DEL, c->fd, NULL);
                    pthread_mutex_lock(&lock);
                    leave(c);
                    pthread_mutex_unlock(&lock);
                }
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd < 0)
                continue;
            pthread_mutex_lock(&lock);
            int full = opened == CONNECTIONS || !(c = calloc(1, sizeof *c));
            opened += !full;
            pthread_mutex_unlock(&lock);
            if (full) {
                close(fd);
                continue;
            }
            c->fd = fd, c->users = 1;
            event = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        store_die("usage", "store SOCKET FOLDER KEYS WORKERS");
    long keys = strtol(argv[3], NULL, 10), workers = strtol(argv[4], NULL, 10);
    if (keys < 1 || workers < 1 || workers > WORKERS)
        store_die("out of range", "KEYS above 0, WORKERS 1..64");
    signal(SIGPIPE, SIG_IGN);
    store_open(argv[2], keys, (int)workers);
    for (long i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL))
            store_die("pthread_create", strerror(errno));
    }
    serve(listen_at(argv[1]));
}
