% A family tree in Prolog: facts with an index by number, which a request follows from some people to
% the first ancestor of all. One thread for each connection.
%
% usage: swipl family.pl SOCKET PEOPLE SEED
:- use_module(library(readutil)).
:- use_module(library(socket)).
:- dynamic person/4.            % person(Number, Parent, Age, Text)
:- initialization(main, main).

main :-
    current_prolog_flag(argv, [Path, People, Seed]),
    atom_number(People, Count),
    atom_number(Seed, Number),
    set_random(seed(Number)),
    text_of_length(65536, Pool),
    make_people(Count, Pool),
    serve(Path).

text_of_length(Length, Text) :-
    length(Codes, Length),
    maplist([Code]>>random_between(0'a, 0'z, Code), Codes),
    string_codes(Text, Codes).

% The parent of a person has half of its number, so that there are as many generations as a number
% has binary digits.
make_people(Count, Pool) :-
    forall(between(1, Count, Number),
           ( Parent is Number // 2,
             random_between(0, 90, Age),
             At is Number * 7 mod 65000,
             sub_string(Pool, At, 400, _, Text),
             assertz(person(Number, Parent, Age, Text)) )).

serve(Path) :-
    unix_domain_socket(Socket),
    atom_concat(Path, '.early', Early),
    tcp_bind(Socket, Early),
    tcp_listen(Socket, 64),
    rename_file(Early, Path),    % under its name only once it answers
    repeat,
    tcp_accept(Socket, Client, _),
    thread_create(talk(Client), _, [detached(true)]),
    fail.

talk(Client) :-
    tcp_open_socket(Client, In, Out),
    catch(exchange(In, Out), error(_, _), true),
    close(Out, [force(true)]),
    close(In, [force(true)]).

exchange(In, Out) :-
    read_line_to_string(In, Line),
    (   Line == end_of_file
    ->  true
    ;   answer(Line, Ages, Text),
        format(Out, "ok ~d ~s~n", [Ages, Text]),
        flush_output(Out),
        exchange(In, Out)
    ).

% The ages of all ancestors of all people that a line names, and the text of the last person.
answer(Line, Ages, Codes) :-
    split_string(Line, " ", "", Words),
    maplist([Word, Sum]>>(number_string(Key, Word), Number is Key + 1, ages(Number, 0, Sum)),
            Words, Sums),
    sum_list(Sums, Ages),
    last(Words, Word),
    number_string(Key, Word),
    Number is Key + 1,
    person(Number, _, _, Text),
    string_codes(Text, Codes).

ages(0, Sum, Sum) :- !.
ages(Number, Before, Sum) :-
    person(Number, Parent, Age, _),
    Now is Before + Age,
    ages(Parent, Now, Sum).
