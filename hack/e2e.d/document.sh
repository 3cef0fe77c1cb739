# Runs blocks of commands as they stand in docs/install.md; sourced by hack/e2e.d/run. tests/docs/install_doc.rs checks
# that each block there is run.
# shellcheck shell=bash

# commands_of COMMAND: prints the commands of the block that begins with COMMAND, without what they print.
commands_of() {
    FIRST=$1 awk '
        /^ *```/ { console = /```console$/; count = 0; wanted = 0; next }
        !console { next }
        { sub(/^ +/, "") }
        /^[$#] / {
            command = 1
            $0 = substr($0, 3)
            text = $0
            sub(/ +# .*/, "", text)
            if (!count++) wanted = text == ENVIRON["FIRST"]
        }
        wanted && command
        !/\\$/ { command = 0 }' docs/install.md
}

# run_block COMMAND: runs this block. What is installed here is a kustomization around manifests/, as that page
# advises: hack/e2e makes the copy. COPY is another copy, and CHANGE a script of sed for the commands.
run_block() {
    local commands
    commands=$(commands_of "$1" | sed -e 's|-k manifests$|-k hack/e2e.d/cluster|' -e "${CHANGE:-}")
    [ -n "$commands" ] || die "docs/install.md has no block that begins with: $1"
    (cd "${COPY:-$WORK/copy}" && timeout 600 bash -euxo pipefail -c "$commands") </dev/null ||
        die "a command of docs/install.md fails or takes longer than 10 minutes: see above, below $1"
}
