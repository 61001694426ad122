# Hashes, strings, regular expressions, sorting, children by fork; the output is the same in
# every run with PERL_HASH_SEED=0.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);

$| = 1;
my $scale = shift;
my %h;
for my $i (0 .. 40_000 * $scale) {
    my $k = "k" . ($i * 7919 % 100_003);
    $h{$k}{n} = $i;
    push @{ $h{$k}{list} }, "v$i" x (1 + $i % 4);
}
delete $h{"k$_"} for map { $_ * 3 } 0 .. 30_000;
my $keys = join ",", sort keys %h;
print "hash ", scalar(keys %h), " ", md5_hex($keys), "\n";

my $text = "";
$text .= sprintf("%06d the quick brown fox %x jumps\n", $_, $_ * 2654435761 % 4294967296) for 1 .. 30_000 * $scale;
my $n = () = $text =~ /fox ([0-9a-f]*7[0-9a-f]*) jumps/g;
(my $other = $text) =~ s/quick (\w+)/slow $1 and $1/g;
print "text ", length($text), " $n ", length($other), " ", md5_hex($other), "\n";

my @words = sort { $a cmp $b or $b cmp $a } split /\s+/, $other;
my %seen;
$seen{$_}++ for @words;
print "words ", scalar(@words), " ", scalar(keys %seen), " ", md5_hex("@words[0 .. 5000]"), "\n";

my @blocks = map { chr(65 + $_ % 26) x (1000 + $_ * 997 % 90_000) } 0 .. 300;
my $whole = md5_hex(join "", @blocks);
for my $round (1 .. 3) {
    pipe(my $r, my $w) or die;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        close $r;
        my $sum = md5_hex(join "", @blocks);
        $_ .= "child" x 100 for @blocks;
        print $w "$sum ", md5_hex(join "", @blocks), "\n";
        close $w;
        exit 0;
    }
    close $w;
    my $before = md5_hex(join "", @blocks);
    substr($_, 10, 5) = "par$round." for @blocks;
    my $said = <$r>;
    waitpid $pid, 0;
    die "the child failed: $?" if $?;
    die "the child saw another memory" unless $said =~ /^$before /;
    print "fork $round $said", md5_hex(join "", @blocks), "\n";
}
my $grown = "";
$grown .= $blocks[$_ % 301] for 1 .. 150 * $scale;
substr($grown, length($grown) / 2, 100_000) = "";
print "grown ", length($grown), " ", md5_hex($grown), " $whole\n";
