// What users of Kafka's own Java client do, told line by line. Arguments: bootstrap, topic.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;

public class JavaSession {
  static final int RECORDS = 100;
  static final long FIRST_MS = 1_700_000_000_000L;

  static Properties options(String bootstrap) {
    Properties chosen = new Properties();
    chosen.put("bootstrap.servers", bootstrap);
    String strings = "org.apache.kafka.common.serialization.String";
    for (String part : List.of("key", "value")) {
      chosen.put(part + ".serializer", strings + "Serializer");
      chosen.put(part + ".deserializer", strings + "Deserializer");
    }
    return chosen;
  }

  static void say(String what, Object found) {
    System.out.println(what + "=" + found);
  }

  static void produce(String bootstrap, String topic, String codec, String acks) throws Exception {
    Properties chosen = options(bootstrap);
    chosen.put("compression.type", codec);
    chosen.put("acks", acks);
    chosen.put("enable.idempotence", acks.equals("all"));
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(chosen)) {
      for (int number = 0; number < RECORDS; number++) {
        producer.send(
            new ProducerRecord<>(
                topic, 0, FIRST_MS + number * 1000L, "key " + number, codec + " " + number));
      }
    }
  }

  static List<ConsumerRecord<String, String>> read(
      KafkaConsumer<String, String> consumer, int count) {
    List<ConsumerRecord<String, String>> found = new ArrayList<>();
    for (int tries = 0; found.size() < count && tries < 100; tries++) {
      consumer.poll(Duration.ofMillis(200)).forEach(found::add);
    }
    return found;
  }

  public static void main(String[] arguments) throws Exception {
    String bootstrap = arguments[0];
    String topic = arguments[1];
    try (Admin admin = Admin.create(options(bootstrap))) {
      admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get(20, TimeUnit.SECONDS);
      for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
        produce(bootstrap, topic, codec, "all");
      }
      produce(bootstrap, topic, "none", "1");
      produce(bootstrap, topic, "none", "0");

      Properties chosen = options(bootstrap);
      chosen.put("group.id", topic);
      chosen.put("auto.offset.reset", "earliest");
      chosen.put("enable.auto.commit", "false");
      TopicPartition place = new TopicPartition(topic, 0);
      try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(chosen)) {
        consumer.subscribe(Set.of(topic));
        List<ConsumerRecord<String, String>> found = read(consumer, 7 * RECORDS);
        boolean dense = true;
        for (int number = 0; number < found.size(); number++) {
          ConsumerRecord<String, String> each = found.get(number);
          dense &= each.offset() == number;
          dense &= each.key().equals("key " + number % RECORDS);
          dense &= each.value().endsWith(" " + number % RECORDS);
          dense &= each.timestamp() == FIRST_MS + number % RECORDS * 1000L;
        }
        say("read", found.size());
        say("dense", dense);
        consumer.commitSync(Map.of(place, new OffsetAndMetadata(30, "a note")));
        say("committed", consumer.committed(Set.of(place)).get(place).offset());
        say("time", consumer.offsetsForTimes(Map.of(place, FIRST_MS + 4500)).get(place).offset());
        say("end", consumer.endOffsets(Set.of(place)).get(place));
      }
      say("described", admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic)
          .partitions().size());
      Uuid id = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).topicId();
      say("by id", admin.describeTopics(TopicCollection.ofTopicIds(Set.of(id))).allTopicIds().get()
          .get(id).name().equals(topic));
      say("grouped", admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get()
          .get(place).metadata());
      say("state", admin.describeConsumerGroups(Set.of(topic)).all().get().get(topic)
          .groupState());
      ConfigResource which = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      admin.incrementalAlterConfigs(Map.of(which, List.of(new AlterConfigOp(
          new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET)))).all().get();
      say("config", admin.describeConfigs(Set.of(which)).all().get().get(which)
          .get("retention.ms").value());
      admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
      say("grown", admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic)
          .partitions().size());
      admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(50))).all().get();
      say("low", admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place)
          .get().offset());
      say("cluster", admin.describeCluster().clusterId().get());
      admin.deleteConsumerGroups(Set.of(topic)).all().get();
      admin.deleteTopics(Set.of(topic)).all().get();
      say("gone", !admin.listTopics().names().get().contains(topic));
    }
  }
}
