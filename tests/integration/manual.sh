#!/bin/bash
# The manual pages are well formed and name every command, option and key.
set -u
top_src=$(cd "$(dirname "$0")/../.." && pwd)
docs=$top_src/docs
failed=0

complain() {
    echo "$*"
    failed=1
}

# A page with the markup of mdoc taken out: words, one space apart.
plain() {
    sed -e 's/^\.[A-Z][a-z]* //' -e 's/\\&//g' "$1" | tr -s ' \n' ' '
}

if command -v mandoc >/dev/null; then
    for page in gems-client.1 gems-job.5 gems-worker.8 gemsd.8; do
        complaints=$(mandoc -T lint -W warning "$docs/$page" 2>&1) || complain "$complaints"
    done
fi

client=$(plain "$docs/gems-client.1")
commands=$(./gems-client --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -gt 10 ] || complain "gems-client --help lists no commands"
for command in $commands; do
    grep -q "^\.It Ic $command\b" "$docs/gems-client.1" || complain "gems-client.1: no command $command"
    grep -qw "$command" "$top_src/client/completion/gems-client" || complain "completion: no command $command"
    while read -r option; do
        [[ $client == *"-$option "* ]] || complain "gems-client.1: no option --$option of $command"
        grep -qe "--$option\b" "$top_src/client/completion/gems-client" ||
            complain "completion: no option --$option of $command"
    done < <(./gems-client "$command" --help | sed -n '/^Options:/,/^$/s/^ .*--\([a-z-]*\).*/\1/p')
    ./gems-client "$command" --help | grep -Eq -- '--cluster' &&
        complain "$command --help shows what is not in this version"
done
while read -r option; do
    [[ $client == *"-$option "* ]] || complain "gems-client.1: no global option --$option"
done < <(./gems-client --help | sed -n '/^Global options/,$s/^ .*--\([a-z-]*\).*/\1/p')

# Keys of the job file, from the table that reads it.
job=$(plain "$docs/gems-job.5")
while read -r key type; do
    [ "$type" = KEY_LATER ] && continue
    [[ $job == *"${key##*.} "* ]] || complain "gems-job.5: no key $key"
done < <(sed -n 's/^    [A-Z0-9_]*("\([a-z_.]*\)", \([A-Za-z_]*\).*/\1 \2/p' "$top_src/client/jobkey.c")

for program in gemsd gems-worker; do
    while read -r option; do
        grep -q "Fl -$option\b" "$docs/$program.8" || complain "$program.8: no option --$option"
    done < <("./$program" --help | sed -n 's/^ *--\([a-z-]*\).*/\1/p')
done

# Keys of gemsd's configuration, in the manual and in the example.
while read -r key; do
    grep -q "\b$key\b" "$docs/gemsd.8" || complain "gemsd.8: no key $key"
done < <(sed -n 's/^    KEY("[a-z]*", "\([a-z_]*\)".*/\1/p' "$top_src/daemon/settings.c")
exit $failed
