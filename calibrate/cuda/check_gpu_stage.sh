# Sourced by check_gpu: what all stages share. A stage is a list of parts; each part is a command
# under a time limit, which writes into the stage's folder and cannot stop the next one. While the
# parts run, the folder is archived again and again, so that a kill leaves all but the last seconds.

archive_limit=$((15 * 1024 * 1024))
period=${CHECK_GPU_PERIOD:-5} # Seconds between archives.
parts_failed=0
reserved=0 # Seconds of the stage that the next parts leave to those behind them.
listing=${CHECK_GPU_LIST:-} # Prints the parts with their limits, and runs none: for tests.
helpers=()
# What a part prints is in its file at once, so that a part that hangs or is killed has said it.
export PYTHONUNBUFFERED=1
by_lines=()
command -v stdbuf >/dev/null 2>&1 && by_lines=(stdbuf -oL)

say() { printf '\n== %s  (%s s)\n' "$1" "$SECONDS"; }

# begin_stage NAME SECONDS OUT: SECONDS are for all parts together.
begin_stage() {
  stage=$1
  stage_end=$((SECONDS + $2))
  out=$(readlink -m "$3")
  # Not in OUT, of which a few files come back.
  work=${CHECK_GPU_WORK:-${TMPDIR:-/tmp}/check_gpu}/$stage
  if [ -n "$listing" ]; then
    printf 'stage\t%s\t%s\n' "$stage" "$2"
    return
  fi
  rm -rf "$work"
  mkdir -p "$out" "$work"
  printf 'part\tstatus\tseconds\tcommand\n' >"$work/parts.tsv"
  date -u +'started %FT%TZ' >"$work/stage.txt"
  trap 'end_helpers; archive' EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  archive
  archive_again &
  helpers+=($!)
  if command -v nvidia-smi >/dev/null 2>&1; then
    local fields=timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu,memory.used
    # The name has changed, and a field that is not known ends the query.
    for reasons in clocks_event_reasons.active clocks_throttle_reasons.active; do
      if nvidia-smi --query-gpu="$reasons" --format=csv >/dev/null 2>&1; then
        fields=$fields,$reasons
        break
      fi
    done
    nvidia-smi --format=csv -l 5 --query-gpu="$fields" >"$work/clocks.csv" 2>&1 &
    helpers+=($!)
  fi
}

# Ends the stage: exit status 0 when every part has ended with 0.
end_stage() {
  [ -z "$listing" ] || return 0
  date -u +'ended %FT%TZ' >>"$work/stage.txt"
  end_helpers
  archive
  say "stage $stage done: $parts_failed parts failed, archive $out/$stage.tar.gz"
  column -t -s "$(printf '\t')" <(cut -f1-3 "$work/parts.tsv") 2>/dev/null || cut -f1-3 "$work/parts.tsv"
  [ "$parts_failed" -eq 0 ]
}

end_helpers() {
  for helper in "${helpers[@]}"; do
    kill "$helper" 2>/dev/null || true
    wait "$helper" 2>/dev/null || true
  done
  helpers=()
}

# The libraries that are loaded now, by all processes: cuDNN and PyTorch load theirs late.
note_libraries() {
  cat /proc/[0-9]*/maps 2>/dev/null | grep -o -E '/[^ ]*\.so[^ ]*' |
    grep -E 'cuda|cudnn|cublas|nccl|nvidia|torch' | sort -u - "$work/libraries.txt" 2>/dev/null \
    >"$work/.libraries" || true
  mv "$work/.libraries" "$work/libraries.txt" 2>/dev/null || true
}

archive_again() {
  trap 'exit 0' TERM
  while true; do
    sleep "$period" &
    wait $!
    note_libraries
    archive
  done
}

# Packs the stage's folder, under a temporary name that is moved. Where it would grow past the limit,
# the largest files stay behind, by name.
archive() {
  (
    cd "$(dirname "$work")" || exit
    part=$out/.$stage.part
    excluded=()
    for _ in 1 2 3 4 5 6 7 8 9; do
      # A file that grows meanwhile is status 1, and no error.
      nice tar --ignore-failed-read --warning=no-file-changed --exclude="$stage/.*" \
        "${excluded[@]}" -czf "$part" "$stage" 2>/dev/null
      [ "$(stat -c %s "$part" 2>/dev/null || echo 0)" -gt "$archive_limit" ] || break
      largest=$(find "$stage" -type f -printf '%s %p\n' | sort -rn |
        sed -n "$((${#excluded[@]} + 1))s/^[0-9]* //p")
      excluded+=("--exclude=$largest")
      grep -q -s -x -F "$largest" "$stage/left_out.txt" || echo "$largest" >>"$stage/left_out.txt"
    done
    mv "$part" "$out/$stage.tar.gz"
  )
}

# part NAME SECONDS COMMAND…: runs it with its output in NAME.txt, of which the end is shown. Never
# fails; `part_status` is the command's, 124 or 137 when its time was over.
part() {
  local name=$1 limit=$2 begin=${EPOCHREALTIME/./} left=$((stage_end - SECONDS - reserved))
  shift 2
  if [ -n "$listing" ]; then
    printf 'part\t%s\t%s\t%s\t%s\n' "$name" "$limit" "$reserved" "$*"
    part_status=0
    return
  fi
  say "$name"
  if [ "$left" -lt 3 ]; then
    part_status=skipped
    echo "skipped: the stage's time is over" | tee "$work/$name.txt"
  else
    part_status=0
    # In the foreground: whoever kills this script's group kills the command with it.
    timeout "${timeout_mode:---foreground}" -k 10 "$((limit < left ? limit : left))" \
      "${by_lines[@]}" "$@" >"$work/$name.txt" 2>&1 ||
      part_status=$?
    tail -n "${part_lines:-6}" "$work/$name.txt" | cut -c1-180
    if [ "$part_status" = 0 ]; then echo "ok"; else echo "exit status $part_status"; fi
  fi
  [ "$part_status" = 0 ] || parts_failed=$((parts_failed + 1))
  local tenths=$(((${EPOCHREALTIME/./} - begin) / 100000))
  printf '%s\t%s\t%d.%d\t%s\n' "$name" "$part_status" "$((tenths / 10))" "$((tenths % 10))" "$*" \
    >>"$work/parts.tsv"
}

# fail_part NAME TEXT: the part has ended with status 0, and yet has failed.
fail_part() {
  echo "$2" | tee -a "$work/$1.txt"
  printf '%s\tfailed\t0\t%s\n' "$1" "$2" >>"$work/parts.tsv"
  parts_failed=$((parts_failed + 1))
}

# note NAME TEXT: a part that does not run, and why.
note() {
  [ -z "$listing" ] || return 0
  say "$1"
  echo "skipped: $2" | tee "$work/$1.txt"
  printf '%s\tskipped\t0\t%s\n' "$1" "$2" >>"$work/parts.tsv"
}
