import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/** What a JVM takes from malloc: the compiler's arenas, direct buffers, zlib's state, threads. */
public class Work {
    static long crc(byte[] b, int n) {
        CRC32 c = new CRC32();
        c.update(b, 0, n);
        return c.getValue();
    }

    static byte[] bytes(int seed, int n) {
        byte[] b = new byte[n];
        long x = seed * 0x9E3779B97F4A7C15L + 1;
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            b[i] = (byte) (x >>> 60);
        }
        return b;
    }

    static String pack(int seed, int n) throws Exception {
        byte[] in = bytes(seed, n);
        Deflater d = new Deflater(1 + seed % 6);
        d.setInput(in);
        d.finish();
        byte[] packed = new byte[n + 1000];
        int m = d.deflate(packed);
        d.end();
        Inflater f = new Inflater();
        f.setInput(packed, 0, m);
        byte[] out = new byte[n];
        int k = f.inflate(out);
        f.end();
        if (k != n || crc(out, n) != crc(in, n)) throw new Exception("zlib lost bytes");
        return m + ":" + crc(packed, m);
    }

    static long direct(int seed) {
        List<ByteBuffer> live = new ArrayList<>();
        CRC32 c = new CRC32();
        for (int i = 0; i < 200; i++) {
            byte[] b = bytes(seed + i, 1 + (i * 7919 + seed) % 60_000);
            ByteBuffer d = ByteBuffer.allocateDirect(b.length);
            d.put(b).flip();
            live.add(d);
            if (live.size() > 40) c.update(live.remove((i * 31) % 40));
        }
        for (ByteBuffer d : live) c.update(d);
        return c.getValue();
    }

    public static void main(String[] args) throws Exception {
        int scale = Integer.parseInt(args[0]);
        Map<String, Integer> m = new TreeMap<>();
        for (int i = 0; i < 60_000 * scale; i++) m.merge("k" + i * 31 % 9_973, i % 100, Integer::sum);
        System.out.println("map " + m.size() + " " + m.hashCode());
        StringBuilder s = new StringBuilder();
        for (int i = 0; i < 40_000 * scale; i++) s.append(i).append(i % 7 == 0 ? '\n' : ' ');
        System.out.println("text " + s.length() + " " + s.toString().hashCode());

        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<String>> packs = new ArrayList<>();
        for (int i = 0; i < 60 * scale; i++) {
            int seed = i;
            packs.add(pool.submit((Callable<String>) () -> pack(seed, 10_000 + seed * 613 % 90_000)));
        }
        List<Future<Long>> directs = new ArrayList<>();
        for (int i = 0; i < 4 * scale; i++) {
            int seed = i * 1000;
            directs.add(pool.submit((Callable<Long>) () -> direct(seed)));
        }
        for (Future<String> f : packs) System.out.print(f.get() + " ");
        System.out.println();
        for (Future<Long> f : directs) System.out.print(f.get() + " ");
        System.out.println();
        pool.shutdown();
        long sum = 0;
        for (int i = 0; i < 200; i++) {
            long[] got = new long[1];
            int seed = i;
            Thread t = new Thread(() -> got[0] = crc(bytes(seed, 5_000), 5_000));
            t.start();
            t.join();
            sum += got[0];
        }
        System.out.println("threads " + sum);
        Process p = new ProcessBuilder("sh", "-c", "echo child; exit 3").start();
        String said = new String(p.getInputStream().readAllBytes());
        System.out.println("process " + said.trim() + " " + p.waitFor());
    }
}
