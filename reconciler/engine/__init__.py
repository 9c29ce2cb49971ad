"""The engine: carries a plan out, and joins manifests, snapshot, plan and writes into one pass.

For the CLI, in the order of use:

    writes = Writes(reader, JetStreamWriter(apis), clock, Throttle(0, clock))          # one per process: whatever is written
    ports = Ports(reader=reader, writes=writes, lease=…, clock=SystemClock(), observer=…)

    planned = await make_plan(desired, rules, ports.reader)        # snapshot, expectation check, plan, questions answered
    planned.plan, planned.live, planned.desired, planned.rules     # planned.plan.refused is a full stop
                                                                   # raises Refused: another cluster than the manifests expect

    applied = await apply_plan(planned, ports, ApplyOptions(continue_=False, timeout=300.0))
    applied.verdict        its value is the exit code: IN_PLACE 0 · FAILED 1 · REFUSED 3 · PARTLY 5 · DENIED 6
    applied.refused        why nothing was written (tuple[Reason, …]), with verdict REFUSED
    applied.outcomes       one Outcome per change, in plan order: change, result, error, seconds, notes; blocked are `skipped`
    applied.remaining      the plan made after the last pass: what is still not as declared
    applied.unverified     why nobody could look again after the last write; empty when somebody did

    save(planned, document)            bytes of plan.json; `document` is the plan as `--format json` prints it
    load_saved(data, file)             SavedPlan(desired, rules, fingerprint); raises InvalidInput
    await replan(saved, ports.reader)  Planned; raises Refused when the fingerprint has moved (stale)

    Recollection(owner)                what a process that plans again and again knows of what it saw: `learn`, `memory`

`Observer.finished(outcome)` is called per change as it ends, `Observer.stepped(key, title)` per step of a procedure:
progress lines hang there. `lease.check()` is called before every write; taking and releasing it is the caller's.

The engine is the only place where rooms meet: it knows `plan`, `procedures` and the Protocols of `ports`, not NATS.
"""
