#!/usr/bin/env bash
# Configures and builds into build/, installing first what is missing. usage: scripts/build.sh [TARGET ...] (default: all)
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
scripts/setup.sh test
build "${@:-all}"
step_done
