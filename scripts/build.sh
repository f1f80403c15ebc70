#!/usr/bin/env bash
# Installs what is missing, then configures and builds into build/. usage: scripts/build.sh [TARGET ...] (default: all)
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
scripts/setup.sh test
build "${@:-all}"
step_done
