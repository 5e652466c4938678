%% A table of routes in memory, on Erlang's virtual machine: a line of numbers gets as many routes.
%%
%% usage: escript routes.erl SOCKET ROUTES SEED
%%
%% Each connection has a process of its own, with a heap and a collector of its own, and gets copies
%% of what the table holds.
-module(routes).
-mode(compile).
-export([main/1]).

-define(TEXT_BYTES, 600).
-define(POOL_BYTES, 65536).

main([Socket, Routes, Seed]) ->
    rand:seed(exsss, list_to_integer(Seed)),
    Table = ets:new(routes, [set, public, {read_concurrency, true}]),
    Pool = << <<($a + rand:uniform(26) - 1)>> || _ <- lists:seq(1, ?POOL_BYTES) >>,
    fill(Table, Pool, 0, list_to_integer(Routes)),
    Early = Socket ++ ".early",
    Options = [binary, {packet, line}, {active, false}, {backlog, 64}, {buffer, 65536},
               {ifaddr, {local, Early}}],
    {ok, Listener} = gen_tcp:listen(0, Options),
    %% Under its name only once it answers.
    ok = file:rename(Early, Socket),
    accept(Listener, Table).

fill(_Table, _Pool, Routes, Routes) -> ok;
fill(Table, Pool, Number, Routes) ->
    Hops = [rand:uniform(1 bsl 32) || _ <- lists:seq(1, 12)],
    At = Number * 7 rem (?POOL_BYTES - ?TEXT_BYTES),
    Text = binary:copy(binary:part(Pool, At, ?TEXT_BYTES)),
    ets:insert(Table, {Number, Hops, Text}),
    fill(Table, Pool, Number + 1, Routes).

accept(Listener, Table) ->
    {ok, Connection} = gen_tcp:accept(Listener),
    Server = spawn(fun() -> serve(Connection, Table) end),
    ok = gen_tcp:controlling_process(Connection, Server),
    accept(Listener, Table).

serve(Connection, Table) ->
    case gen_tcp:recv(Connection, 0) of
        {ok, Line} ->
            Words = binary:split(Line, [<<" ">>, <<"\n">>], [global, trim_all]),
            gen_tcp:send(Connection, answer(Table, [binary_to_integer(Word) || Word <- Words])),
            serve(Connection, Table);
        {error, _} -> gen_tcp:close(Connection)
    end.

answer(Table, Numbers) ->
    Found = [ets:lookup(Table, Number) || Number <- Numbers],
    case lists:member([], Found) of
        true -> <<"error: no such route\n">>;
        false ->
            [<<"ok">>, [route(Route) || [Route] <- Found], <<"\n">>]
    end.

route({Number, Hops, Text}) ->
    [$\s, integer_to_binary(Number), $\s, integer_to_binary(lists:sum(Hops)), $\s, Text].
