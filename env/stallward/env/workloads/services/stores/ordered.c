/* SPDX-License-Identifier: Apache-2.0
 * An ordered store of keys and values in memory: LMDB, a B+ tree that readers share with one writer.
 *
 * A request is "set K", "get K", or several of them in one line; each is a transaction. */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

enum { MAP_BYTES = 256 << 20, FILL = 1000 };

static MDB_env *env;
static MDB_dbi table;
static long keys_held;

static void check(int status, const char *what)
{
    if (status)
        store_die(what, mdb_strerror(status));
}

static MDB_val key_of(uint64_t key, unsigned char bytes[8])
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(key >> (56 - 8 * i)); /* big endian: in the order of the keys */
    return (MDB_val){8, bytes};
}

static void put(MDB_txn *txn, uint64_t key, uint64_t seed)
{
    unsigned char bytes[8];
    uint64_t value[VALUE_BYTES / 8];
    for (size_t i = 0; i < VALUE_BYTES / 8; i++)
        value[i] = store_mix(seed + i);
    MDB_val name = key_of(key, bytes), data = {sizeof value, value};
    check(mdb_put(txn, table, &name, &data, 0), "mdb_put");
}

void store_open(const char *folder, long keys, int workers)
{
    MDB_txn *txn;
    keys_held = keys;
    check(mdb_env_create(&env), "mdb_env_create");
    check(mdb_env_set_mapsize(env, MAP_BYTES), "mdb_env_set_mapsize");
    check(mdb_env_set_maxreaders(env, (unsigned)workers + 1), "mdb_env_set_maxreaders");
    check(mdb_env_open(env, folder, MDB_NOSYNC | MDB_WRITEMAP, 0600), folder);
    for (long from = 0; from < keys; from += FILL) {
        check(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
        check(mdb_dbi_open(txn, NULL, 0, &table), "mdb_dbi_open");
        for (long key = from; key < from + FILL && key < keys; key++)
            put(txn, (uint64_t)key, (uint64_t)key);
        check(mdb_txn_commit(txn), "mdb_txn_commit");
    }
}

static int set(uint64_t key)
{
    MDB_txn *txn;
    check(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
    put(txn, key, store_mix(key));
    check(mdb_txn_commit(txn), "mdb_txn_commit");
    return 1;
}

static int get(uint64_t key)
{
    unsigned char bytes[8];
    MDB_txn *txn;
    MDB_val name = key_of(key, bytes), data;
    check(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "mdb_txn_begin");
    int status = mdb_get(txn, table, &name, &data);
    mdb_txn_abort(txn);
    return status == MDB_SUCCESS && data.mv_size == VALUE_BYTES;
}

size_t store_answer(const char *request, char *answer)
{
    char command[4];
    unsigned long long key;
    int size, ok = 0;
    while (sscanf(request, " %3s %llu%n", command, &key, &size) == 2) {
        ok = key < (unsigned long long)keys_held;
        if (ok && !strcmp(command, "set"))
            ok = set(key);
        else if (ok && !strcmp(command, "get"))
            ok = get(key);
        else
            ok = 0;
        if (!ok)
            break;
        request += size;
    }
    return (size_t)snprintf(answer, ANSWER_BYTES, "%s\n", ok ? "ok" : "error");
}
