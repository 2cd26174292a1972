#!/usr/bin/env bash
# render.sh HELM: writes gpumem.yaml anew, what the chart makes of its values as they are, in the namespace gpumem.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
{
  printf '# Made by render.sh of the chart beside it; change that.\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: gpumem\n'
  printf '  labels:\n    # hostPID and folders of the node.\n    pod-security.kubernetes.io/enforce: privileged\n'
  "$1" template gpumem chart --namespace gpumem --kube-version 1.36
} > gpumem.yaml
