/* SPDX-License-Identifier: Apache-2.0
 * A transactional store in memory: RocksDB's optimistic transactions, which are checked for
 * conflicts when they commit, as Silo's are.
 *
 * A request is "tx SEED". It runs one of the two transactions that make up 88 % of TPC-C, new order
 * and payment in proportion 45 to 43, on values drawn from SEED, and again while it conflicts. */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

enum {
    DISTRICTS = 10, CUSTOMERS = 100, ITEMS = 1000, ATTEMPTS = 1000,
    NEW_ORDER_SHARE = 45, BOTH_SHARES = 88,
};

struct row { uint64_t number, amount, unused[6]; };

static rocksdb_optimistictransactiondb_t *db;
static rocksdb_writeoptions_t *writes;
static rocksdb_readoptions_t *reads;
static rocksdb_optimistictransaction_options_t *plain;
static uint64_t warehouses;

static void check(char *error, const char *what)
{
    if (error)
        store_die(what, error);
}

/* Keys: a letter for the table, and three numbers. */
static size_t name(char *key, char table, uint64_t a, uint64_t b, uint64_t c)
{
    return (size_t)snprintf(key, 64, "%c%08llu%08llu%016llu", table, (unsigned long long)a,
                            (unsigned long long)b, (unsigned long long)c);
}

static void put(rocksdb_transaction_t *t, char table, uint64_t a, uint64_t b, uint64_t c, struct row row)
{
    char key[64], *error = NULL;
    size_t size = name(key, table, a, b, c);
    rocksdb_transaction_put(t, key, size, (char *)&row, sizeof row, &error);
    check(error, "put");
}

/* Reads a row that the transaction depends on, and adds to it. */
static struct row add(rocksdb_transaction_t *t, char table, uint64_t a, uint64_t b, uint64_t c, uint64_t amount)
{
    char key[64], *error = NULL;
    struct row row = {0};
    size_t size = name(key, table, a, b, c), found;
    char *value = rocksdb_transaction_get_for_update(t, reads, key, size, &found, 1, &error);
    check(error, "get");
    if (!value || found != sizeof row)
        store_die("a row is missing", key);
    memcpy(&row, value, sizeof row);
    rocksdb_free(value);
    row.number++, row.amount += amount;
    put(t, table, a, b, c, row);
    return row;
}

static void new_order(rocksdb_transaction_t *t, uint64_t w, uint64_t d, uint64_t seed)
{
    uint64_t lines = 5 + store_mix(seed) % 11;
    struct row district = add(t, 'd', w, d, 0, 0);
    put(t, 'o', w, d, district.number, (struct row){.number = lines});
    for (uint64_t line = 0; line < lines; line++) {
        uint64_t item = store_mix(seed + line + 1) % ITEMS;
        struct row stock = add(t, 's', w, item, 0, 1);
        put(t, 'l', w, d, district.number * 16 + line, (struct row){.number = item, .amount = stock.amount});
    }
}

static void payment(rocksdb_transaction_t *t, uint64_t w, uint64_t d, uint64_t seed)
{
    uint64_t amount = store_mix(seed) % 5000;
    add(t, 'w', w, 0, 0, amount);
    add(t, 'd', w, d, 0, amount);
    add(t, 'c', w, d, store_mix(seed + 1) % CUSTOMERS, amount);
}

static int commit(rocksdb_transaction_t *t)
{
    char *error = NULL;
    rocksdb_transaction_commit(t, &error);
    int busy = error && (strstr(error, "busy") || strstr(error, "Try again"));
    if (!busy)
        check(error, "commit");
    rocksdb_free(error);
    return !busy;
}

void store_open(const char *folder, long keys, int workers)
{
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    (void)keys;
    warehouses = (uint64_t)workers;
    writes = rocksdb_writeoptions_create();
    reads = rocksdb_readoptions_create();
    plain = rocksdb_optimistictransaction_options_create();
    rocksdb_writeoptions_disable_WAL(writes, 1);
    rocksdb_options_set_env(options, rocksdb_create_mem_env());
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_write_buffer_size(options, 256 << 20); /* all of it stays in the memtable */
    db = rocksdb_optimistictransactiondb_open(options, folder, &error);
    check(error, folder);
    for (uint64_t w = 0; w < warehouses; w++) {
        rocksdb_transaction_t *t = rocksdb_optimistictransaction_begin(db, writes, plain, NULL);
        put(t, 'w', w, 0, 0, (struct row){0});
        for (uint64_t item = 0; item < ITEMS; item++)
            put(t, 's', w, item, 0, (struct row){0});
        for (uint64_t d = 0; d < DISTRICTS; d++) {
            put(t, 'd', w, d, 0, (struct row){0});
            for (uint64_t c = 0; c < CUSTOMERS; c++)
                put(t, 'c', w, d, c, (struct row){0});
        }
        if (!commit(t))
            store_die("commit", "conflict while filling");
        rocksdb_transaction_destroy(t);
    }
}

size_t store_answer(const char *request, char *answer)
{
    unsigned long long key;
    int done = 0;
    if (sscanf(request, "tx %llu", &key) != 1)
        return (size_t)snprintf(answer, ANSWER_BYTES, "error\n");
    uint64_t seed = store_mix(key), w = seed % warehouses, d = store_mix(seed) % DISTRICTS;
    for (int i = 0; i < ATTEMPTS && !done; i++) {
        rocksdb_transaction_t *t = rocksdb_optimistictransaction_begin(db, writes, plain, NULL);
        if (store_mix(seed + 1) % BOTH_SHARES < NEW_ORDER_SHARE)
            new_order(t, w, d, seed + 2);
        else
            payment(t, w, d, seed + 2);
        done = commit(t);
        rocksdb_transaction_destroy(t);
    }
    return (size_t)snprintf(answer, ANSWER_BYTES, "%s\n", done ? "ok" : "error");
}
