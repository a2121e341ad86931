// The published Java client of this protocol, through its whole surface. Prints what came of it as name=value lines.
// Run: java -cp 'JARS/*' RstmdbSession.java HOST PORT NAME

import com.rstmdb.client.RstmdbClient;
import com.rstmdb.client.exception.RstmdbException;
import com.rstmdb.client.model.ApplyEventRequest;
import com.rstmdb.client.model.BatchMode;
import com.rstmdb.client.model.BatchOperation;
import com.rstmdb.client.model.CreateInstanceRequest;
import com.rstmdb.client.model.ListInstancesOptions;
import com.rstmdb.client.model.MachineDefinition;
import com.rstmdb.client.model.PutMachineRequest;
import com.rstmdb.client.model.Transition;
import com.rstmdb.client.model.WatchAllOptions;
import com.rstmdb.client.model.WatchInstanceRequest;
import com.rstmdb.client.transport.Subscription;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

public final class RstmdbSession {
    private static RstmdbClient client;
    private static String name;

    public static void main(String[] args) throws Exception {
        name = args[2];
        client = connect(args[0], Integer.parseInt(args[1]));
        try {
            system();
            machines();
            instances();
            events();
            batches();
            watches();
            log();
            pipeline();
        } finally {
            client.close();
        }
    }

    /** Later versions of the client have an interface where the first one has the class itself. */
    private static RstmdbClient connect(String host, int port) throws Exception {
        Class<?> maker;
        try {
            maker = Class.forName("com.rstmdb.client.RstmdbClientImpl");
        } catch (ClassNotFoundException absent) {
            maker = RstmdbClient.class;
        }
        return (RstmdbClient) maker.getMethod("connect", String.class, int.class).invoke(null, host, port);
    }

    private static void say(String what, Object value) {
        System.out.println(what + "=" + value);
    }

    private static String refused(Runnable work) {
        try {
            work.run();
            return "nothing";
        } catch (RstmdbException error) {
            return error.getErrorCode();
        }
    }

    private static CreateInstanceRequest creation(String id) {
        return CreateInstanceRequest.builder()
            .instanceId(id).machine(name).version(1).initialCtx(Map.of("customer", "alice")).build();
    }

    private static ApplyEventRequest event(String id, String event) {
        return ApplyEventRequest.builder().instanceId(id).event(event).payload(Map.of("by", "ann")).build();
    }

    private static void system() {
        client.pingSync();
        say("hello", client.getServerInfo().getProtocolVersion() + " " + client.getServerInfo().getWireMode());
        var info = client.getInfoSync();
        say("info", info.getServerName() + " " + info.getMaxFrameBytes() + " " + info.getMaxBatchOps());
        say("features", info.getFeatures().containsAll(List.of("idempotency", "batch", "wal_read")));
    }

    private static Transition step(List<String> from, String event, String to) {
        return Transition.builder().from(from).event(event).to(to).build();
    }

    private static void machines() {
        var definition = MachineDefinition.builder()
            .states(List.of("created", "paid", "shipped", "cancelled"))
            .initial("created")
            .transitions(List.of(
                step(List.of("created"), "PAY", "paid"),
                step(List.of("paid"), "SHIP", "shipped"),
                step(List.of("created", "paid"), "CANCEL", "cancelled")))
            .meta(Map.of("description", "orders"))
            .build();
        var request = PutMachineRequest.builder().machine(name).version(1).definition(definition).build();
        say("put", client.putMachineSync(request).isCreated());
        say("put again", client.putMachineSync(request).isCreated());
        var found = client.getMachineSync(name, 1).getDefinition();
        say("states", String.join(",", found.getStates()));
        say("from", found.getTransitions().get(2).getFrom());
        say("listed", client.listMachinesSync().stream()
            .anyMatch(each -> each.getMachine().equals(name) && each.getVersions().contains(1)));
        say("no machine", refused(() -> client.getMachineSync(name, 9)));
    }

    private static void instances() {
        var made = client.createInstanceSync(creation(name + "-1"));
        say("created", made.getInstanceId().equals(name + "-1") + " " + made.getState());
        say("exists", refused(() -> client.createInstanceSync(creation(name + "-1"))));
        var found = client.getInstanceSync(name + "-1");
        say("instance", found.getState() + " " + found.getCtx().get("customer"));
        say("same offset", found.getLastWalOffset() == made.getWalOffset());
        say("all", client.listInstancesSync().getInstances().isEmpty());
        var options = ListInstancesOptions.builder().machine(name).state("created").limit(5000).offset(0).build();
        say("list", client.listInstancesSync(options).getTotal());
        client.createInstanceSync(creation(name + "-gone"));
        say("deleted", client.deleteInstanceSync(name + "-gone").isDeleted());
        say("deleted twice", client.deleteInstanceSync(name + "-gone").isDeleted());
        say("gone", refused(() -> client.getInstanceSync(name + "-gone")));
    }

    private static void events() {
        var moved = client.applyEventSync(event(name + "-1", "PAY"));
        say("moved", moved.getFromState() + " " + moved.getToState() + " " + moved.isApplied());
        say("merged", moved.getCtx().get("by") + " " + moved.getCtx().get("customer"));
        say("invalid", refused(() -> client.applyEventSync(event(name + "-1", "PAY"))));
        var expecting = ApplyEventRequest.builder()
            .instanceId(name + "-1").event("SHIP").expectedState("created").build();
        say("conflict", refused(() -> client.applyEventSync(expecting)));
        var once = ApplyEventRequest.builder()
            .instanceId(name + "-1").event("SHIP").eventId("e-1").idempotencyKey(name).build();
        say("once", client.applyEventSync(once).isApplied() + " " + client.applyEventSync(once).isApplied());
    }

    private static void batches() {
        var create = BatchOperation.createInstance(creation(name + "-b"));
        var pay = BatchOperation.applyEvent(event(name + "-b", "PAY"));
        var delete = BatchOperation.deleteInstance(name + "-b");
        say("atomic", statuses(BatchMode.ATOMIC, create, pay));
        say("best effort", statuses(BatchMode.BEST_EFFORT, create, delete));
        say("empty", statuses(BatchMode.BEST_EFFORT));
        say("refused", refused(() -> client.batchSync(BatchMode.ATOMIC, create, pay, pay)));
    }

    private static String statuses(BatchMode mode, BatchOperation... operations) {
        return client.batchSync(mode, operations).stream()
            .map(each -> each.getStatus()).collect(Collectors.joining(","));
    }

    private static void watches() throws Exception {
        client.createInstanceSync(creation(name + "-w"));
        var one = WatchInstanceRequest.builder().instanceId(name + "-w").includeCtx(true).build();
        var paid = WatchAllOptions.builder().includeCtx(true).machines(List.of(name)).toStates(List.of("paid")).build();
        try (Subscription first = client.watchInstanceSync(one); Subscription all = client.watchAllSync(paid)) {
            client.applyEventSync(event(name + "-w", "PAY"));
            var heard = first.poll(Duration.ofSeconds(20));
            say("watched", heard.getFromState() + " " + heard.getToState() + " " + heard.getCtx().get("by"));
            say("watched by all", all.poll(Duration.ofSeconds(20)).getInstanceId().equals(name + "-w"));
        }
        client.watchAllSync().close();
    }

    private static void log() {
        var made = client.createInstanceSync(creation(name + "-l"));
        var page = client.walReadSync(made.getWalOffset());
        var record = page.getRecords().get(0);
        say("record", (record.getOffset() == made.getWalOffset()) + " " + ((Map<?, ?>) record.getEntry()).get("type"));
        say("next", page.getNextOffset() > made.getWalOffset());
        say("many", client.walRead(0, 1_000_000).join().getRecords().size() > 5);
        var stats = client.walStatsSync();
        say("stats", (stats.getLatestOffset() > 0) + " " + (stats.getIoStats().getFsyncs() > 0));
        var snapshot = client.snapshotInstanceSync(name + "-l");
        say("snapshot", snapshot.getInstanceId().equals(name + "-l") + " " + (snapshot.getSizeBytes() > 0)
            + " " + snapshot.getChecksum().length());
        var compacted = client.compact(true).join();
        say("compacted", compacted.getSnapshotsCreated() + " " + (compacted.getTotalSnapshots() > 0)
            + " " + (compacted.getWalSegments() > 0));
    }

    /** What is sent without waiting is executed in its order. */
    private static void pipeline() {
        List<CompletableFuture<String>> states = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            String id = name + "-p-" + number;
            client.createInstance(creation(id));
            client.applyEvent(event(id, "PAY"));
            states.add(client.getInstance(id).thenApply(each -> each.getState()));
        }
        say("pipelined", states.stream().map(CompletableFuture::join).distinct().collect(Collectors.toList()));
    }
}
