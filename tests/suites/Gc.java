import java.lang.ref.SoftReference;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Garbage in quantity: collections, references that are cleared, direct buffers that are freed. */
public class Gc {
    static final class Node {
        final long value;
        final Node left, right;

        Node(long value, int depth) {
            this.value = value;
            left = depth == 0 ? null : new Node(value * 2, depth - 1);
            right = depth == 0 ? null : new Node(value * 2 + 1, depth - 1);
        }

        long sum() {
            return value + (left == null ? 0 : left.sum() + right.sum());
        }
    }

    /** The numbers of a tree from `root`: at depth d from root << d, 1 << d of them. */
    static long expected(long root, int depth) {
        long sum = 0;
        for (int d = 0; d <= depth; d++) {
            long first = root << d, n = 1L << d;
            sum += n * first + n * (n - 1) / 2;
        }
        return sum;
    }

    static long checks;

    static synchronized void check(long got, long wanted) {
        checks++;
        if (got != wanted) throw new AssertionError(got + " instead of " + wanted);
    }

    static void work(int thread, int scale) {
        Node kept = new Node(thread, 14);
        Map<Integer, byte[]> live = new HashMap<>();
        for (int i = 0; i < 60 * scale; i++) {
            check(new Node(i + 1, 12).sum(), expected(i + 1, 12));
            for (int k = 0; k < 400; k++) {
                int key = (i * 7 + k * 31) % 1500;
                byte[] old = live.put(key, new byte[64 + key % 900]);
                if (old != null) check(old[old.length - 1], 0);
            }
            // Memory by malloc, freed when the collector finds its owner gone.
            List<ByteBuffer> buffers = new ArrayList<>();
            for (int k = 0; k < 20; k++) {
                ByteBuffer b = ByteBuffer.allocateDirect(1024 << (k % 8));
                for (int at = 0; at + 8 <= b.capacity(); at += 512) b.putLong(at, at * 31L + k);
                buffers.add(b);
            }
            for (int k = 0; k < 20; k++) {
                ByteBuffer b = buffers.get(k);
                for (int at = 0; at + 8 <= b.capacity(); at += 512) check(b.getLong(at), at * 31L + k);
            }
            WeakReference<Object> weak = new WeakReference<>(new Object());
            SoftReference<Node> soft = new SoftReference<>(new Node(3, 6));
            if (i % 20 == 0) System.gc();
            Node n = soft.get();
            if (n != null && n.sum() != expected(3, 6)) throw new AssertionError("soft");
        }
        check(kept.sum(), expected(thread, 14));
    }

    public static void main(String[] args) throws Exception {
        int scale = Integer.parseInt(args[0]);
        Thread[] threads = new Thread[4];
        Throwable[] wrong = new Throwable[1];
        for (int t = 0; t < threads.length; t++) {
            int id = t + 1;
            threads[t] = new Thread(() -> work(id, scale));
            threads[t].setUncaughtExceptionHandler((thread, e) -> wrong[0] = e);
            threads[t].start();
        }
        for (Thread t : threads) t.join();
        if (wrong[0] != null) throw new Exception(wrong[0]);
        System.out.println(checks + " checks");
    }
}
