// What a KafkaJS user does, told as one line of JSON. Arguments: bootstrap, topic.

const { Kafka, logLevel, CompressionTypes } = require("kafkajs");

const [bootstrap, topic] = process.argv.slice(2);

async function main() {
  const kafka = new Kafka({ clientId: "session", brokers: [bootstrap], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] });

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const sent = [];
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = [0, 1, 2, 3, 4].map((number) => ({
      key: `key ${number}`,
      value: `value ${compression} ${number}`,
      headers: { number: `${number}` },
      partition: number % 2,
    }));
    sent.push(...messages.map((message) => message.value));
    await producer.send({ topic, compression, messages });
  }
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: topic, heartbeatInterval: 200 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const read = [];
  await new Promise((resolve, reject) => {
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          read.push({
            partition,
            offset: Number(message.offset),
            value: message.value.toString(),
            header: message.headers.number.toString(),
          });
          if (read.length === sent.length) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();

  const offsets = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
  const ends = await admin.fetchTopicOffsets(topic);
  const group = await admin.describeGroups([topic]);
  await admin.deleteTopics({ topics: [topic] });
  const topics = await admin.listTopics();
  await admin.disconnect();
  console.log(JSON.stringify({ sent, read, offsets, ends, group, topics }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
