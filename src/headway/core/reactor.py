"""What each event does to the state: one function per event. None calls a policy; they only say that a round is due."""

from __future__ import annotations

from dataclasses import replace

from headway.core import cancelling, leases, lifecycle, moving, nodes, renting, suspects, switching
from headway.core.pool import pool_of
from headway.core.state import State
from headway.model.events import (
    ClockStepped,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NetworkChosen,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeOff,
    NodeOn,
    NodeOpened,
    NodeResized,
    NodesHeard,
    NodeSwitched,
    NodeUp,
    Reclaimed,
    Rented,
    RentFailed,
    RentingChosen,
    Returned,
    SitesChosen,
    SlotsBounded,
    SwitchFailed,
    SwitchingChosen,
    TaskEnded,
    TaskSaved,
    TasksCancelled,
    TaskStarted,
    TaskStruck,
    TierRefused,
    WindowEnded,
)
from headway.model.instant import NEVER
from headway.model.job import PENALTY_MAX, Service, changed
from headway.model.network import Routes
from headway.model.outcome import Outcome
from headway.model.power import PowerState, by_site
from headway.model.seen import WINDOWS_KEPT, AttemptView, NodeView
from headway.model.site import by_name


def on_job_submitted(state: State, event: JobSubmitted) -> bool:
    """A new job enters; an id that is already known is ignored."""
    if event.job.id in state.jobs:
        return False
    state.enter(event.job, event.predicted)
    return True


def on_job_cancelled(state: State, event: JobCancelled) -> bool:
    """Waiting tasks are dropped and running ones killed; instances may finish what they do. Then the job ends."""
    job = state.jobs.get(event.job)
    if job is None or job.cancelled:
        return False
    pool = pool_of(job)
    pool.unrank(job)
    pool.unplan_job(job)
    job.cancelled = True
    cancelling.drop_ready_tasks(pool, job)
    for _, attempt in sorted(job.attempts.items()):
        if job.endless:
            state.let_leave(attempt)
        else:
            pool.ask_to_end(attempt)
    pool.conclude_if_done(job)
    pool.look_at_everything()
    return True


def on_tasks_cancelled(state: State, event: TasksCancelled) -> bool:
    """Drop those of these tasks that wait, and kill those that run; tasks that depend on them never start."""
    job = state.jobs.get(event.job)
    tasks = [] if job is None else cancelling.open_tasks(job, event.tasks)
    if job is None or not tasks:
        return False
    pool = pool_of(job)
    cancelling.drop_tasks(pool, job, tasks)
    pool.conclude_if_done(job)
    pool.look_at_everything()
    return True


def on_job_changed(state: State, event: JobChanged) -> bool:
    """The job has new terms."""
    job = state.jobs.get(event.job)
    if job is None:
        return False
    pool = pool_of(job)
    pool.step_out(job)
    indexes = pool.indexes_of(job)
    for index in indexes:
        index.discard(job)
    if event.priority is not None:
        job.priority = event.priority
    if event.due is not None:
        job.due = event.due
    job.spec = changed(job.spec, event.rate, event.shape, event.threshold, event.fraction, event.least)
    for index in indexes:
        index.add(job)
    pool.step_in(job)
    pool.look_at_everything()
    return True


def current(state: State, event: TaskStarted | TaskSaved | TierRefused | TaskEnded | TaskStruck) -> AttemptView | None:
    """The attempt that an answer is about, unless the core no longer waits for it."""
    return state.current(event.job, event.task, event.attempt)


def on_task_started(state: State, event: TaskStarted) -> bool:
    """The attempt runs: its slots are busy and no longer only occupied, and its time counts from now."""
    attempt = current(state, event)
    if attempt is None:
        return False
    if not attempt.running:
        attempt.running = True
        if state.rules >= lifecycle.ISOLATING and not attempt.queued:
            pool_of(attempt.job).begin(attempt)
    return True


def on_task_saved(state: State, event: TaskSaved) -> bool:
    """The work of the attempt until now is saved."""
    attempt = current(state, event)
    if attempt is None or attempt.queued or attempt.job.endless:
        return False
    attempt.saved = state.now
    return True


def on_window_ended(state: State, event: WindowEnded) -> bool:
    """What is known of a service: the top level looks at it, and the service's own pool need not.

    A window of no length tells of no rate, and is ignored.
    """
    job = state.jobs.get(event.job)
    if job is None or not job.endless or event.window.length <= 0:
        return False
    assert isinstance(job.spec, Service)
    job.windows = (*job.windows, event.window)[-WINDOWS_KEPT:]
    job.cost = min(job.cost + job.spec.penalty(event.window.share), PENALTY_MAX)
    state.measured = True
    state.look_at_everything()
    return True


def on_tier_refused(state: State, event: TierRefused) -> bool:
    """The attempt keeps running where it was; whatever was to use its old place must do without it."""
    attempt = current(state, event)
    if attempt is None or attempt.tier is not event.tier:
        return False
    moving.put_back(pool_of(attempt.job), attempt)
    return True


def on_task_ended(state: State, event: TaskEnded) -> bool:
    """The attempt is over. Its slots go to their owners, and nodes and slots that wait to be idle leave."""
    attempt = current(state, event)
    if attempt is None:
        return False
    pool = pool_of(attempt.job) if state.others else state
    pool.end(attempt, event.outcome)
    _shed_all(state)
    return True


def _shed_all(state: State) -> None:
    """Drop nodes and slots that were to leave when idle, and are idle now."""
    if state.draining:
        for node in list(state.nodes.values()):
            if node.draining or node.closing:
                nodes.shed(state, node)
            elif node.waits_to_go_off:
                switching.shed(state, node)


def on_task_struck(state: State, event: TaskStruck) -> bool:
    """The attempt is over; what ended it is unknown, or no fault of its task."""
    attempt = current(state, event)
    if attempt is None:
        return False
    pool_of(attempt.job).end(attempt, event.outcome, struck=True)
    _shed_all(state)
    return True


def on_node_joined(state: State, event: NodeJoined) -> bool:
    """A node joins; if its name is known, it comes back, even if it was draining."""
    node = state.nodes.get(event.node.name)
    if node is not None and node.spec != event.node:
        return False
    if node is not None:
        _is_back(state, node)
    if event.node.name not in state.nodes:
        node = nodes.add(state, event.node)
    if state.rents and node is not None:
        renting.has_joined(state, node)
    return True


def on_node_down(state: State, event: NodeDown) -> bool:
    """What ran on the node is lost; while it is switched nothing does, and the answer to the switch counts."""
    node = state.nodes.get(event.name)
    if node is None or not node.up or _has_no_agent(state, node):
        return False
    leases.take_down(state, node, Outcome.KILLED if event.excused else Outcome.LOST)
    return True


def on_node_up(state: State, event: NodeUp) -> bool:
    """The node is back and runs nothing."""
    node = state.nodes.get(event.name)
    if node is None or _has_no_agent(state, node):
        return False
    _is_back(state, node)
    return True


def _has_no_agent(state: State, node: NodeView) -> bool:
    """Whether a node is off, or is being switched, so that it can neither be lost nor be back."""
    is_dark = node.power is not PowerState.ON and not node.waits_to_go_off
    return is_dark and state.rules >= lifecycle.KEEPING_OFF


def _is_back(state: State, node: NodeView) -> None:
    """A node is back and runs nothing; it goes off if an operator keeps it off."""
    leases.bring_up(state, node)
    if node.kept_off and node.up:
        switching.keep_off(state, node)


def on_node_closed(state: State, event: NodeClosed) -> bool:
    """Nothing more starts on the node until it opens."""
    node = state.nodes.get(event.name)
    if node is None or not node.up or node.closed:
        return False
    nodes.close(state, node)
    return True


def on_node_opened(state: State, event: NodeOpened) -> bool:
    """The node can be used again."""
    node = state.nodes.get(event.name)
    if node is None or not node.closed:
        return False
    if state.suspects:
        suspects.wait_again(state)
    nodes.reopen(state, node)
    return True


def on_node_drained(state: State, event: NodeDrained) -> bool:
    """Nothing more starts on the node; it leaves when nothing runs there."""
    node = state.nodes.get(event.name)
    if node is None or node.draining:
        return False
    node.draining = state.draining = True
    state.close_all(node.slots)
    nodes.shed(state, node)
    return True


def on_node_resized(state: State, event: NodeResized) -> bool:
    """A node has more or fewer slots than before."""
    node = state.nodes.get(event.name)
    if node is None or event.slots < 1 or event.slots == node.spec.slots:
        return False
    nodes.resize(state, node, event.slots, at_once=event.at_once)
    return True


def on_node_switched(state: State, event: NodeSwitched) -> bool:
    """An operator wants a node on or off."""
    node = state.nodes.get(event.name)
    if node is None or node.draining or (not node.up and state.rules < lifecycle.KEEPING_OFF):
        return False
    if event.by_hand:
        return switching.by_hand(state, node, on=event.on)
    is_put_off = node.is_put_off and node.power is not PowerState.ON
    if event.on:
        comes = node.power in (PowerState.ON, PowerState.COMING_ON) or node.comes_back
        if comes and not node.kept_off and not is_put_off:
            return False
        switching.let_on(state, node)
        return True
    if node.kept_off and not is_put_off:
        return False
    switching.keep_off(state, node)
    return True


def on_node_off(state: State, event: NodeOff) -> bool:
    """The node is off."""
    node = state.nodes.get(event.name)
    return node is not None and switching.is_expected(node, event.switch) and switching.is_off(state, node)


def on_node_on(state: State, event: NodeOn) -> bool:
    """The node is on and runs nothing."""
    node = state.nodes.get(event.name)
    if node is None or not switching.is_expected(node, event.switch):
        return False
    return switching.is_on(state, node, is_answer=event.switch > 0)


def on_switch_failed(state: State, event: SwitchFailed) -> bool:
    """The node is neither off nor on as it was to be; it is tried again later."""
    node = state.nodes.get(event.name)
    if node is None or not switching.is_expected(node, event.switch):
        return False
    return switching.has_failed(state, node, event.detail, serves=event.serves)


def on_switching_chosen(state: State, event: SwitchingChosen) -> bool:
    """Nodes are switched by other settings than before."""
    settings = by_site(event.settings)
    if settings == dict(state.switching):
        return False
    switching.choose(state, settings)
    for pool in state.each():
        pool.look_at_everything()
    return True


def on_renting_chosen(state: State, event: RentingChosen) -> bool:
    """Other machines can be rented than before, or at other prices."""
    if event.renting == state.market.renting:
        return False
    renting.choose(state, event.renting)
    return True


def on_rented(state: State, event: Rented) -> bool:
    """There is a machine."""
    return renting.has_begun(state, event.rental, event.machine)


def on_rent_failed(state: State, event: RentFailed) -> bool:
    """There will be no machine."""
    return renting.has_failed(state, event.rental, event.detail)


def on_reclaimed(state: State, event: Reclaimed) -> bool:
    """A site wants a machine back."""
    return renting.is_reclaimed(state, event.rental, event.until)


def on_returned(state: State, event: Returned) -> bool:
    """A machine is gone."""
    return renting.is_returned(state, event.rental)


def on_slots_bounded(state: State, event: SlotsBounded) -> bool:
    """Policies see no more tasks of the user than there may start; what runs continues."""
    ration = state.rations.get(event.user)
    if event.most == (None if ration is None else ration.most):
        return False
    state.bound(event.user, event.most)
    for pool in state.each():
        pool.look_at_everything()
    return True


def on_node_measured(state: State, event: NodeMeasured) -> bool:
    """Policies see the measurements in their next round."""
    node = state.nodes.get(event.name)
    if node is None:
        return False
    node.measures.update(event.values)
    return True


def on_network_chosen(state: State, event: NetworkChosen) -> bool:
    """Data travels otherwise than before: what is planned is planned anew."""
    if event.network == state.routes.network:
        return False
    routes = Routes(event.network)
    for pool in state.each():
        pool.routes = routes
    _plan_all_anew(state)
    return True


def on_sites_chosen(state: State, event: SitesChosen) -> bool:
    """Sites are preferred otherwise than before, or tasks take another time to begin there: they are planned anew."""
    if event.sites == tuple(state.sites.values()):
        return False
    sites = by_name(event.sites)
    for pool in state.each():
        pool.sites = sites
    _plan_all_anew(state)
    return True


def _plan_all_anew(state: State) -> None:
    """What is planned in any pool is planned anew."""
    for pool in state.each():
        pool.plan_anew()
        pool.look_at_everything()


def on_node_left(state: State, event: NodeLeft) -> bool:
    """The node is gone for good; what ran there is redone."""
    node = state.nodes.get(event.name)
    if node is None:
        return False
    leases.take_down(state, node, Outcome.KILLED)
    if not node.draining:
        nodes.remove(state, node)
    if state.rules >= lifecycle.LOOKING_WHEN_LEFT:
        state.let_top_level_look()  # also if it was down: what its site could hold while it might come back
    return True


def on_clock_stepped(state: State, event: ClockStepped) -> bool:
    """The step adds nothing to run times or to the silence of nodes. Nothing is learnt from these run times."""
    if event.forward < 0:
        return False
    state.shift(event.forward)
    for node in state.nodes.values():
        node.idle_since = min(NEVER, node.idle_since + event.forward)
        node.power_until = min(NEVER, node.power_until + event.forward)
        if node.trouble is not None:
            node.trouble = replace(node.trouble, again=min(NEVER, node.trouble.again + event.forward))
        if node.heard_until < NEVER:
            node.heard_until += event.forward
    state.market.shift(event.forward)
    return True


def on_nodes_heard(state: State, event: NodesHeard) -> bool:
    """The lease of each node starts again."""
    for name in event.names:
        node = state.nodes.get(name)
        if node is not None:
            leases.heard(state, node)
    return True
