# A shop in Perl: hashes and strings, each a small piece of the heap with a count of its users. It
# answers one line after the other.
#
# usage: perl basket.pl SOCKET ARTICLES SEED
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;

my ($path, $articles, $seed) = @ARGV;
srand $seed;
my $pool = join '', map { chr(97 + int rand 26) } 1 .. 65_536;
my %article;
for my $number (0 .. $articles - 1) {
    my $at = $number * 7 % 65_000;
    my @words = map { substr $pool, $at + 9 * $_, 8 } 0 .. 3;
    $article{"a$number"} =
      {text => substr($pool, $at, 400), price => int rand 10_000, words => \@words};
}

sub answer {
    my @found = map { $article{"a$_"} } split / /, shift;
    my $total = 0;
    $total += $_->{price} for @found;
    return join(' ', 'ok', $total, map { ($_->{text}, @{$_->{words}}) } @found) . "\n";
}

my $listener = IO::Socket::UNIX->new(Local => "$path.early", Listen => 64) or die "$path: $!";
# Under its name only once it answers.
rename "$path.early", $path or die "$path: $!";
$SIG{PIPE} = 'IGNORE';
my $clients = IO::Select->new($listener);
my %read;
while (my @ready = $clients->can_read) {
    for my $client (@ready) {
        if ($client == $listener) {
            $clients->add(scalar $listener->accept);
            next;
        }
        my $got = sysread $client, $read{$client}, 65_536, length($read{$client} // '');
        while ($got && $read{$client} =~ s/\A([^\n]*)\n//) {
            my $line = $1;
            $client->send(answer($line)) or $got = 0;
        }
        next if $got;
        delete $read{$client};
        $clients->remove($client);
        close $client;
    }
}
